from django.db.migrations import Migration as DjangoMigration

from stepwell.contrib.django.schema import to_newest_schema


class Migration(DjangoMigration):
    dependencies = (("stepwell", "0012_open_rate"),)
    operations = (to_newest_schema(),)
