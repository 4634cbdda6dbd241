from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.EmailField(max_length=254)),
                ("receipt", models.CharField(blank=True, max_length=64)),
                ("sent", models.BooleanField(default=False)),
            ],
        ),
    )
