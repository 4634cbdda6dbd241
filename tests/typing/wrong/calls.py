from stepwell import App, Context, Task

app = App("embedded")


@app.task
async def add(x: int, y: int = 0) -> int:
    return x + y


@app.task
def greet(name: str) -> str:
    return name


@app.task
async def settle(ctx: Context, order_id: int) -> None: ...


chain = app.chain("chain", greet.fn)


async def main(ctx: Context, some: Task[[str], str]) -> None:
    await add("one")  # error
    number: int = add(1)  # error
    greet(1)  # error
    number = greet("a")  # error
    print(number)
    greet.fn(1)  # error
    await settle(7)  # error
    await settle(ctx)  # error
    some("a")  # error
    chain("a")  # error
    add(1, 2).upper()  # error
    print("what follows a call is still checked", 1 + "a")  # error
