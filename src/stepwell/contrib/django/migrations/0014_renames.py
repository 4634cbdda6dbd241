from django.db.migrations import Migration as DjangoMigration

from stepwell.contrib.django.schema import to_newest_schema


class Migration(DjangoMigration):
    dependencies = (("stepwell", "0013_tuned"),)
    operations = (to_newest_schema(),)
