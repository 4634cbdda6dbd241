"""Tasks as functions: what a call takes and returns, and what `fn` is."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from stepwell import App, AsyncContextTask, AsyncTask, Context, SyncContext, SyncContextTask, SyncTask, Task

app = App("embedded")


@app.task
async def add(x: int, y: int = 0) -> int:
    return x + y


@app.task(queue="mail")
def greet(name: str) -> str:
    return name


@app.task
async def settle(ctx: Context, order_id: int) -> None:
    await add(order_id)


@app.task(transaction=True)
def book(ctx: Context, order_id: int) -> list[str]:
    return [greet("a")]


@app.task
def plain(ctx: SyncContext, sku: str) -> float:
    return 1.0


@app.task
def shown(x: Any, y: int = 0) -> str:
    return str(x)


@app.task(name="later")
async def shown_later(x: object, y: int = 0) -> str:
    return str(x)


def enqueue_it(task: Task[[str], object]) -> None:
    task.enqueue("a")


add_fn: Callable[[int], Coroutine[Any, Any, int]] = add.fn
greet_fn: Callable[[str], str] = greet.fn
kinds: tuple[
    AsyncTask[..., int],
    SyncTask[[str], str],
    AsyncContextTask[..., None],
    SyncContextTask[..., list[str], Context],
    SyncContextTask[..., float, SyncContext],
] = (add, greet, settle, book, plain)


async def main(ctx: Context, sync: SyncContext) -> None:
    assert_type(await add(1, y=2), int)
    assert_type(await add.fn(1), int)
    assert_type(greet("a"), str)
    assert_type(greet.fn("a"), str)
    await settle(ctx, 7)
    await settle.fn(ctx, order_id=7)
    assert_type(book(ctx, 7), list[str])
    assert_type(plain(sync, "a"), float)
    assert_type(plain.fn(sync, sku="a"), float)
    enqueue_it(greet)
    shown.enqueue(1, y=2)
    shown.enqueue(x=1)
    shown_later.enqueue(x=1, y=2)
    text: str = shown(1)
    print(text)
    assert_type(await shown_later(1), str)
