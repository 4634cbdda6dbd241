"""A chain: the output of one step is the input of the next, and none is run again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from waiting import auntil

from stepwell import App, Context, Done, JobFailed, Next, Retry, Step, SyncContext, Worker
from stepwell.errors import ConfigError, StepNotFound

SOON = Retry(max_attempts=3, initial="5ms", jitter=0)
ONCE = Retry(max_attempts=1)


async def fetch(url: str, depth: int = 1) -> bytes:
    return url.encode() * depth


def parse(body: bytes) -> dict[str, int]:
    return {"length": len(body)}


async def store(ctx: Context, parsed: dict[str, int]) -> int:
    return parsed["length"]


@dataclass
class Found:
    place: int


@dataclass
class Lost:
    why: str


@pytest.mark.counts_runs
async def test_a_chain_hands_on_what_each_returns(app: App) -> None:
    ingest = app.chain("ingest", fetch, parse, store)
    async with Worker(app):
        job = await ingest.aenqueue("abc", depth=2)
        assert await job.aresult(timeout="10s") == 6
        info = await job.ainfo()
    assert info is not None
    assert (info.cursor, info.epoch, info.attempt) == ("store", 1, 1)
    assert [(step.key, step.kind, step.value) for step in info.steps] == [
        ("fetch", "state", {"url": "abc", "depth": 2}),
        ("parse", "state", "YWJjYWJj"),
        ("store", "state", {"length": 6}),
    ]


async def test_a_step_that_fails_is_tried_alone_with_attempts_of_its_own(app: App) -> None:
    ran: list[str] = []

    async def one(n: int) -> int:
        ran.append("one")
        return n + 1

    async def two(ctx: Context, n: int) -> int:
        ran.append(f"two {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError("busy")
        return n + 1

    async def three(ctx: Context, n: int) -> list[int]:
        ran.append(f"three {ctx.attempt}")
        return [n, ctx.attempt]

    chain = app.chain("count", one, Step(two, retry=SOON), three, retry=ONCE)
    async with Worker(app):
        assert await (await chain.aenqueue(1)).aresult(timeout="10s") == [3, 1]
    assert ran == ["one", "two 1", "two 2", "two 3", "three 1"]


async def test_a_chain_that_failed_in_its_first_step_is_retried_from_that_by_name(app: App) -> None:
    broken = True

    def one(n: int) -> int:
        if broken:
            raise ValueError("broken")
        return n + 1

    def two(n: int) -> int:
        return n * 2

    chain = app.chain("sum", one, two, retry=ONCE)
    async with Worker(app):
        job = await chain.aenqueue(1)
        with pytest.raises(JobFailed, match="broken"):
            await job.aresult(timeout="10s")
        with pytest.raises(StepNotFound, match="has not reached 'two' yet"):
            await job.aretry(step="two")
        broken = False
        fork = await app.afork(job, step="one")
        assert await fork.aresult(timeout="10s") == 4
        assert await job.aretry(step="one")
        assert await job.aresult(timeout="10s") == 4


async def test_a_chain_that_failed_resumes_where_it_stood_or_from_another_step_or_the_start(app: App) -> None:
    ran: list[str] = []
    broken = True

    def one(n: int) -> int:
        ran.append("one")
        return n + 1

    def two(n: int) -> int:
        ran.append("two")
        return n * 2

    def three(n: int) -> int:
        ran.append("three")
        if broken:
            raise ValueError("broken")
        return n

    chain = app.chain("sum", one, two, three, retry=ONCE)
    async with Worker(app):
        job = await chain.aenqueue(1)
        for again, expected in (
            (lambda: job.aretry(), ["three"]),
            (lambda: job.aretry(step="two"), ["two", "three"]),
            (lambda: job.aretry(step="one"), ["one", "two", "three"]),
            (lambda: job.aretry(from_start=True), ["one", "two", "three"]),
        ):
            with pytest.raises(JobFailed, match="broken"):
                await job.aresult(timeout="10s")
            ran.clear()
            assert await again()
            await auntil(lambda expected=expected: ran == expected)
        with pytest.raises(JobFailed, match="broken"):
            await job.aresult(timeout="10s")
        with pytest.raises(StepNotFound, match="has no step 'four'"):
            await job.aretry(step="four")
        broken = False
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == 4
        fork = await app.afork(job, step="two")
        assert await fork.aresult(timeout="10s") == 4
        info = await fork.ainfo()
    assert info is not None
    assert info.forked_from == job.id


@pytest.mark.counts_runs
async def test_next_may_wait_and_done_may_end(app: App) -> None:
    def one(n: int) -> Next[int] | Done[str]:
        return Done("early") if n < 0 else Next(n, after="60ms")

    def two(n: int) -> str:
        return f"late {n}"

    chain = app.chain("waits", one, two)
    async with Worker(app):
        began = time.monotonic()
        assert await (await chain.aenqueue(-1)).aresult(timeout="10s") == "early"
        job = await chain.aenqueue(1)
        assert await job.aresult(timeout="10s") == "late 1"
        assert time.monotonic() - began >= 0.06
        info = await job.ainfo()
    assert info is not None
    assert (info.epoch, info.attempt) == (2, 1)


async def test_what_ends_a_chain_early_may_be_of_another_type_than_what_its_last_step_returns(app: App) -> None:
    def look(n: int) -> Next[int] | Done[str]:
        return Done("early") if n < 0 else Next(n)

    def count(n: int) -> int:
        return n

    def search(n: int) -> Next[int] | Done[Lost]:
        return Done(Lost("gone")) if n < 0 else Next(n)

    def found(n: int) -> Found:
        return Found(n)

    counts, finds = app.chain("counts", look, count), app.chain("finds", search, found)
    async with Worker(app):
        for chain, given, result in (
            (counts, -1, "early"),
            (counts, 5, 5),
            # JSON does not tell one from the other.
            (finds, -1, {"why": "gone"}),
            (finds, 5, {"place": 5}),
        ):
            assert await (await chain.aenqueue(given)).aresult(timeout="10s") == result


async def test_a_step_may_be_for_another_queue_and_have_a_timeout(app: App) -> None:
    seen: list[str] = []

    def one(ctx: SyncContext, n: int) -> int:
        seen.append(ctx.queue)
        return n

    async def two(ctx: Context, n: int) -> int:
        seen.append(ctx.queue)
        return n

    async def slow(n: int) -> int:
        await asyncio.sleep(30)
        return n

    chain = app.chain("queues", one, Step(two, queue="gpu"), Step(slow, timeout="30ms", retry=ONCE))
    async with Worker(app, queues=["default", "gpu"]):
        job = await chain.aenqueue(1)
        with pytest.raises(JobFailed, match="step 'slow' ran longer than its timeout of 30ms"):
            await job.aresult(timeout="10s")
        info = await job.ainfo()
    assert seen == ["default", "gpu"]
    assert info is not None
    assert info.failures[0].reason == "timeout"


@pytest.mark.slow
async def test_a_deploy_may_insert_steps_and_one_that_took_a_step_away_is_told(app: App, dsn: str) -> None:
    def one(n: int) -> Next[int]:
        return Next(n + 1, after="1.5s")

    def two(n: int) -> int:
        return n * 10

    def between(n: int) -> int:
        return n + 1000

    before = app.chain("deployed", one, two)
    async with Worker(app):
        jobs = [await before.aenqueue(1) for _ in range(2)]
        for job in jobs:
            await auntil(lambda job=job: waits(job))
    async with App(dsn) as later:
        after = later.chain("deployed", one, between, two, retry=ONCE)
        async with Worker(later):
            # It stood before `two`, and there it still stands.
            assert await jobs[0].aresult(timeout="10s") == 20
            assert await (await after.aenqueue(1)).aresult(timeout="10s") == 10020
    async with App(dsn, misfit_grace=0) as wrong:
        wrong.chain("deployed", one, between, retry=Retry(max_attempts=2, initial="5ms", jitter=0))
        job = await before.aenqueue(1)
        async with Worker(app):
            await auntil(lambda: waits(job))
        async with Worker(wrong):
            with pytest.raises(JobFailed, match="'deployed' has no step 'two' in this code: put it back"):
                await job.aresult(timeout="10s")
        info = await job.ainfo()
        assert info is not None
        assert info.attempt == 2


async def waits(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "waiting"


def test_types_that_do_not_fit_are_refused_when_the_chain_is_built(app: App) -> None:
    def number(x: str) -> int:
        return int(x)

    def text(x: str) -> str:
        return x

    def real(x: float) -> float:
        return x

    def maybe(x: int | None) -> int | None:
        return x

    def numbers(x: int) -> list[int]:
        return [x]

    def texts(x: list[str]) -> None: ...
    def two_args(x: int, y: int) -> None: ...
    def no_args() -> None: ...
    def text_of(x: Any) -> str:
        return str(x)

    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((number, text), "'text' takes str, but 'number' returns int"),
        ((maybe, real), "'real' takes float, but 'maybe' returns"),
        ((number, numbers, texts), "'texts' takes list[str], but 'numbers' returns list[int]"),
        ((number, two_args), "'two_args' must take one argument"),
        ((number, no_args), "'no_args' must take one argument"),
        ((), "has no steps"),
        ((number, number), "two steps named 'number'"),
        ((number, "text"), "a step is a function, not 'text'"),
        ((number, str), "a step is a function, not <class 'str'>: write one around it"),
        ((number, partial(two_args, 1)), "a step is a function, not functools.partial"),
        ((number, lambda x: x), "a lambda has no name"),  # pyright: ignore[reportUnknownLambdaType]
    ]
    for steps, said in wrong:
        with pytest.raises(ConfigError) as raised:
            app.chain("wrong", *steps)
        assert said in str(raised.value)
    app.chain("right", number, real)
    app.chain("right too", number, maybe, Step(text_of, name="same"))
    with pytest.raises(ConfigError, match="has no signature"):
        app.chain("builtin", number, min)  # pyright: ignore[reportCallIssue, reportArgumentType]


async def test_a_value_that_cannot_be_handed_on_names_its_step(app: App) -> None:
    def bad(n: int) -> Any:
        return object()

    def after(n: Any) -> None: ...

    chain = app.chain("bad", bad, after)
    async with Worker(app):
        with pytest.raises(JobFailed, match="step 'bad' of chain 'bad' returned an object"):
            await (await chain.aenqueue(1)).aresult(timeout="10s")
