"""What a job of a batch task cannot be enqueued with, and functions that cannot take a batch."""

from stepwell import App, Context

app = App("postgresql:///wrong")


@app.task(batch=100, batch_wait="50ms")
async def embed(texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


@app.task(batch=10)
def plain(numbers: list[int]) -> list[str]:
    return [str(number) for number in numbers]


async def main() -> None:
    await embed.aenqueue(["a", "b"])  # error
    await embed.aenqueue(1)  # error
    await embed.aenqueue("a", "b")  # error
    await embed("a")  # error
    plain.enqueue("1")  # error
    embed.call(2)  # error
    text: str = await (await embed.aenqueue("a")).aresult()  # error
    print(text)


@app.task(batch=10)  # error
async def takes_one(text: str) -> list[str]:
    return [text]


@app.task(batch=10)  # error
async def takes_context(ctx: Context, texts: list[str]) -> list[str]:
    return texts


@app.task(batch=10)  # error
async def returns_one(texts: list[str]) -> str:
    return texts[0]


@app.task(batch_wait="1s")  # error
async def no_batch(texts: list[str]) -> list[str]:
    return texts


@app.task(batch=10, process=True)  # error
def apart(texts: list[str]) -> list[str]:
    return texts
