from stepwell import App, Context, SyncContext

app = App("embedded")


async def charge(order_id: int) -> float:
    return order_id / 100


def label(sku: str) -> list[str]:
    return [sku]


def tear(labels: list[str]) -> None: ...


def burn(parcel: bytes, how: str) -> None: ...


@app.task
async def checkout(ctx: Context, skus: list[str]) -> None:
    await ctx.step(charge, 7, undo=tear)  # error
    await ctx.step(label, "a", undo=burn)  # error
    await ctx.map(label, [1, 2])  # error
    one, two = await ctx.gather(ctx.step(charge, 7), ctx.step(label, "a"))
    one.append("b")  # error
    two.append("b")
    await ctx.gather(charge)  # error


@app.task
def plain(ctx: SyncContext, skus: list[str]) -> None:
    ctx.step(label, "a", undo=burn)  # error
    ctx.map(label, [1, 2])  # error
    one, two = ctx.gather(lambda: ctx.step(charge, 7), lambda: ctx.step(label, "a"))
    one.append("b")  # error
    two.append("b")
