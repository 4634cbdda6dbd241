"""Every line marked with "# error" must be refused by the type checker, and no other."""

from stepwell import App, Context, Worker

app = App("embedded")


@app.task
async def add(x: int, y: int) -> int:
    return x + y


@app.task
async def settle(ctx: Context, order_id: int) -> None: ...


@app.task(colour="red")  # error
async def coloured() -> None: ...


async def main() -> None:
    await add.aenqueue(1)  # error
    await add.aenqueue(1, "two")  # error
    await add.aenqueue(1, 2, 3)  # error
    await add.aenqueue(1, z=2)  # error
    add.enqueue("1", 2)  # error
    add.using(priority="high")  # error
    add.using(colour="red")  # error
    add.using(retry=3)  # error
    add.using(keep_failed=None, timeout=[1])  # error
    add.using(delay="1s").enqueue(1, None)  # error
    await settle.aenqueue("seven")  # error
    await settle.aenqueue(None, 7)  # error
    text: str = await (await add.aenqueue(1, 2)).aresult()  # error
    print(text)
    Worker(app, concurrency="many")  # error
