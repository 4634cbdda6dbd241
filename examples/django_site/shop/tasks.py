"""The jobs of the shop."""
# pyright: basic

from typing import TYPE_CHECKING, Any

import django
from django.core.mail import send_mail

from shop.models import Order

if TYPE_CHECKING:

    def task(*_: Any, **__: Any) -> Any: ...
elif django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task


@task
def send_receipt(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    send_mail(f"Your order {order.pk}", "Thank you!", "shop@example.org", [order.customer])
    order.sent = True
    order.save(update_fields=["sent"])
    return order.customer
