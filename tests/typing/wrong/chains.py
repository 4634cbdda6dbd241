from stepwell import App, Chain, Done, Next, Step

app = App("embedded")


def parse(body: bytes) -> dict[str, int]:
    return {"length": len(body)}


async def report(n: int) -> str:
    return f"half is {n}"


def check(n: int) -> Next[int] | Done[str]:
    return Next(n)


good = app.chain("good", check, report)
wrong: Chain[[bytes], str] = app.chain("wrong", check, report)  # error
app.chain("broken", parse, report)  # error: pyright
app.chain("stepped", parse, Step(report))  # error: pyright
app.chain("moved", check, report, report)  # error: pyright
app.chain("none")  # error
Step(7)  # error
Step(parse, transaction="yes")  # error
Step(parse, colour="red")  # error


async def main() -> None:
    await good.aenqueue("seven")  # error
    number: int = await (await good.aenqueue(7)).aresult()  # error: pyright
    print(number)
