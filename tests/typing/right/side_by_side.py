"""Steps with undo, and branches that run side by side."""

from typing import assert_type

from stepwell import App, Context, SyncContext

app = App("embedded")


async def charge(order_id: int, cents: int) -> float:
    return order_id + cents / 100


async def refund(charged: float) -> None: ...


def tell() -> None: ...


def label(sku: str) -> list[str]:
    return [sku]


def tear(labels: list[str]) -> None: ...


async def pack(ctx: Context, sku: str) -> int:
    return len(await ctx.step(label, sku))


def print_label(ctx: SyncContext, sku: str) -> int:
    return len(ctx.step(label, sku))


@app.task
async def ship(order_id: int) -> str:
    return str(order_id)


@app.task
async def checkout(ctx: Context, skus: list[str]) -> None:
    assert_type(await ctx.step(charge, 1, 300, undo=refund), float)
    assert_type(await ctx.step(charge, 1, 300, undo=tell), float)
    assert_type(await ctx.step(label, "a", undo=tear), list[str])
    await ctx.step(label, "b", undo=lambda labels: print(labels))
    assert_type(await ctx.gather(ctx.step(label, "a")), tuple[list[str]])
    assert_type(await ctx.gather(ctx.step(label, "a"), ctx.spawn(ship, 1)), tuple[list[str], str])
    a, b, c, d, e, f = await ctx.gather(
        ctx.step(label, "a"), ctx.spawn(ship, 1), ctx.step(charge, 1, 2), ctx.now(), ctx.spawn(ship, 2), ctx.sleep(1)
    )
    assert_type((a, b, c), tuple[list[str], str, float])
    assert_type((d.year, e, f), tuple[int, str, None])
    assert_type(await ctx.gather(*[ctx.spawn(ship, 1) for _ in skus]), list[str])
    assert_type(await ctx.gather(ctx.spawn(ship, 1), return_exceptions=True), list[str | BaseException])
    assert_type(await ctx.map(label, skus, limit=10), list[list[str]])
    assert_type(await ctx.map(pack, skus, key=lambda sku: sku.lower()), list[int])
    assert_type(await ctx.map(ship.fn, [1, 2]), list[str])


@app.task
def plain(ctx: SyncContext, skus: list[str]) -> None:
    assert_type(ctx.step(charge, 1, 300, undo=refund), float)
    assert_type(ctx.step(label, "a", undo=tear), list[str])
    ctx.step(label, "b", undo=lambda labels: print(labels))
    assert_type(ctx.gather(lambda: ctx.step(label, "a"), ctx.spawn(ship, 1)), tuple[list[str], str])
    assert_type(ctx.gather(*ctx.spawn_many(ship, [{"order_id": 1}])), list[str])
    assert_type(ctx.map(label, skus), list[list[str]])
    assert_type(ctx.map(print_label, skus), list[int])
    assert_type(ctx.map(ship.fn, [1, 2]), list[str])
