"""Orders."""
# pyright: basic

from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    receipt = models.CharField(max_length=64, blank=True)
    """The id of the job that sends the receipt."""
    sent = models.BooleanField(default=False)
