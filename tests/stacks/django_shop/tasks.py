"""The tasks of the shop, as a Django site has them."""
# pyright: basic

import threading
from typing import TYPE_CHECKING, Any

import django
from django.db import connection
from stacks.django_shop.models import Order

from stepwell import Limit, Retry
from stepwell.contrib.django import app

if TYPE_CHECKING:

    def task(*_: Any, **__: Any) -> Any: ...
elif django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task

called: list[Any] = []


@app.schedule("0 3 * * *", args={"a": 7})
@task
def add(a: int, b: int = 0, *more: int, **named: int) -> int:
    return a + b + sum(more) + sum(named.values())


@task(queue_name="mail", priority=7)
def send_mail(to: str) -> dict[str, Any]:
    called.append((to, threading.current_thread().name))
    return {"sent": to}


@task
async def count_orders(customer: str) -> int:
    return await Order.objects.filter(customer=customer).acount()


@task
def make_order(customer: str) -> int:
    return Order.objects.create(customer=customer).pk


@task(takes_context=True)
def fail_until(context: Any, attempt: int) -> list[Any]:
    if context.attempt < attempt:
        raise ValueError(f"attempt {context.attempt}")
    return [context.attempt, context.task_result.status, len(context.task_result.errors)]


@task
def fail(message: str) -> None:
    raise LookupError(message)


@task
def return_a_set() -> Any:
    return {1, 2}


def charge(order: int) -> str:
    called.append(order)
    return f"charge-{order}"


@task(takes_context=True)
def checkout(context: Any, order: int) -> str:
    paid = context.stepwell.step(charge, order)
    if not context.task_result.errors:
        raise ValueError("after the charge")
    return paid


@task(unique="{customer}", retry=Retry(max_attempts=1, initial=0), timeout="1m")
def bill(customer: str, month: int = 1) -> None:
    raise ValueError(month)


@task(limit=Limit(1, key="warehouse-{place}"))
def pack(place: str, /, order: int = 1) -> bool:
    return app.count_jobs(state="running") == 1


@app.task
def native(customer: str) -> int:
    """A task of Stepwell's own in the same site."""
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    return Order.objects.filter(customer=customer).count()


@app.task
async def anative(customer: str) -> int:
    return await Order.objects.filter(customer=customer).acount()


@app.task
def double(number: int) -> int:
    return 2 * number
