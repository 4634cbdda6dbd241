from django.db.migrations import Migration as DjangoMigration

from stepwell.contrib.django.schema import to_newest_schema


class Migration(DjangoMigration):
    dependencies = (("stepwell", "0010_stacks"),)
    operations = (to_newest_schema(),)
