"""Batch tasks: a job is one element of the list, its result one element of the list that is returned."""

from dataclasses import dataclass
from typing import assert_type

from stepwell import App, Fail, JobHandle, Limit

app = App("postgresql:///right")


@dataclass
class Vector:
    at: list[float]


@app.task(batch=100, batch_wait="50ms")
async def embed(texts: list[str]) -> list[Vector]:
    return [Vector([float(len(text))]) for text in texts]


@app.task(batch=100, limit=Limit(2))
async def checked(texts: list[str]) -> list[int | Exception]:
    return [len(text) if text else Fail("empty") for text in texts]


@app.task(batch=100)
async def gathered(texts: list[str]) -> list[int | BaseException]:
    return [len(text) for text in texts]


@app.task(batch=10)
async def stored(numbers: list[int]) -> None: ...


@app.task(batch=10)
def plain(numbers: list[int]) -> list[str]:
    return [str(number) for number in numbers]


@app.task(batch=10)
def plain_checked(numbers: list[int]) -> list[str | Exception]:
    return [str(number) for number in numbers]


@app.task(batch=10)
def plain_stored(pairs: list[tuple[int, str]]) -> None: ...


async def main() -> None:
    assert_type(await embed.aenqueue("hello"), JobHandle[Vector])
    assert_type(await (await embed.aenqueue("hello")).aresult(), Vector)
    assert_type(await embed(["a", "b"]), list[Vector])
    assert_type(await (await checked.aenqueue("hello")).aresult(), int)
    assert_type(await checked(["a"]), list[int | Exception])
    assert_type(await (await gathered.aenqueue("hello")).aresult(), int)
    assert_type(await stored.aenqueue(1), JobHandle[None])
    assert_type(plain.enqueue(1), JobHandle[str])
    assert_type(plain([1]), list[str])
    assert_type(plain_checked.enqueue(1), JobHandle[str])
    assert_type(plain_stored.enqueue((1, "a")), JobHandle[None])
    await app.aenqueue_many([embed.call("a"), plain.call(1)])
    await embed.using(priority=3, timeout="5s").aenqueue("b")
    await embed.aenqueue_many([{"texts": "a"}, {"texts": "b"}])
