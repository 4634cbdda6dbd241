"""Plain functions have the same, through a sync context, in their thread."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from waiting import auntil

from stepwell import App, Context, JobFailed, Retry, StepwellError, SyncContext, Worker
from stepwell.worker.steps import step_threads

SOON = Retry(max_attempts=5, initial="5ms", jitter=0)
ONCE = Retry(max_attempts=1)


async def test_branches_that_wait_for_branches_of_their_own_do_not_wait_for_their_threads(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_threads, "MOST", 2)

    @app.task
    def work(ctx: SyncContext) -> list[list[int]]:
        def branch(ctx: SyncContext, n: int) -> list[int]:
            return ctx.gather(*[lambda k=k: ctx.step(int, n * 10 + k, key=str(k)) for k in range(3)])

        return ctx.map(branch, range(5))

    async with Worker(app):
        jobs = [await work.aenqueue() for _ in range(3)]
        for job in jobs:
            assert await job.aresult(timeout="20s") == [[n * 10 + k for k in range(3)] for n in range(5)]


@pytest.mark.slow
async def test_all_of_it_in_one_plain_function(app: App) -> None:
    ran: list[str] = []
    threads: set[threading.Thread] = set()

    def count(n: int) -> int:
        ran.append("count")
        threads.add(threading.current_thread())
        return n + 1

    async def awaited(n: int) -> int:
        ran.append("awaited")
        return n + 1

    @app.task
    def child(n: int) -> int:
        return n * 10

    @app.task(retry=SOON)
    def work(ctx: SyncContext, order: int) -> dict[str, Any]:
        threads.add(threading.current_thread())
        one = ctx.step(count, order)
        two = ctx.step(awaited, one)
        if ctx.attempt == 1:
            raise ConnectionError
        ctx.sleep("1.1s")
        paid = ctx.wait_for("paid", key=str(order), timeout="60s")
        told = ctx.receive("word", timeout="60s")
        children = ctx.spawn_many(child, [{"n": n} for n in range(3)])
        both = ctx.gather(*children, lambda: ctx.step(count, 100), ctx.spawn(child, 9))
        mapped = ctx.map(count, [7, 8], limit=1)
        first = ctx.first(lambda: ctx.step(count, 50), lambda: ctx.wait_for("never"))
        assert abs((datetime.now(UTC) - ctx.now()).total_seconds()) < 60
        return {
            "steps": [one, two],
            "paid": paid.value,
            "told": told.value,
            "both": both,
            "mapped": mapped,
            "first": list(first),
            "chance": ctx.random() < 1 and ctx.uuid().version == 4 and ctx.patched("new"),
            "child": ctx.spawn(child, 4).result(),
        }

    async with Worker(app, concurrency=2):
        job = await work.aenqueue(7)
        await job.asend("word", "hello")
        await app.aemit("paid", key="7", value=True)
        assert await job.aresult(timeout="20s") == {
            "steps": [8, 9],
            "paid": True,
            "told": "hello",
            "both": [0, 10, 20, 101, 90],
            "mapped": [8, 9],
            "first": [0, 51],
            "chance": True,
            "child": 40,
        }
    assert ran.count("awaited") == 1
    assert ran.count("count") == 5
    assert all(thread is not threading.main_thread() for thread in threads)


async def test_a_map_with_a_context_runs_branches_in_threads(app: App) -> None:
    together = threading.Barrier(2)

    def meet(n: int) -> int:
        together.wait(60)
        return n

    def item(ctx: SyncContext, n: int) -> int:
        return ctx.step(meet, n) + 1

    @app.task
    def work(ctx: SyncContext) -> list[int]:
        return ctx.map(item, [1, 2])

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == [2, 3]
        info = await job.ainfo()
    assert info is not None
    assert {step.key for step in info.steps} == {"map:item[1]/meet", "map:item[2]/meet"}


async def test_a_plain_function_with_the_wrong_context_is_told_so(app: App) -> None:
    @app.task(retry=ONCE)
    def work(ctx: Context) -> None:
        ctx.step(time.time)  # pyright: ignore[reportUnusedCoroutine]

    @app.task(retry=ONCE)
    def slow(ctx: SyncContext) -> None:
        ctx.step(time.time, timeout="1s")

    async with Worker(app):
        with pytest.raises(JobFailed, match="declare its parameter as 'ctx: SyncContext'"):
            await (await work.aenqueue()).aresult(timeout="10s")
        with pytest.raises(JobFailed, match="timeout= is for async ones"):
            await (await slow.aenqueue()).aresult(timeout="10s")


async def test_branches_and_their_handlers_do_not_wait_for_each_others_threads(app: App) -> None:
    def add(n: int) -> int:
        return n + 1

    @app.task
    def work(ctx: SyncContext, n: int) -> int:
        return sum(ctx.gather(*(lambda m=m: sum(ctx.map(add, [m, m + 1])) for m in range(3))))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    async with Worker(app, concurrency=4):
        jobs = [await work.aenqueue(n) for n in range(8)]
        assert [await job.aresult(timeout="20s") for job in jobs] == [15] * 8


async def test_a_context_is_of_no_use_to_a_thread_that_outlives_its_handler(app: App) -> None:
    returned = threading.Event()
    said: list[str] = []

    @app.task
    def work(ctx: SyncContext) -> int:
        def later() -> None:
            returned.wait(10)
            try:
                ctx.step(len, "abc")
            except StepwellError as error:
                said.append(str(error))

        threading.Thread(target=later).start()
        return ctx.step(len, "ab")

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 2
        returned.set()
        await auntil(lambda: said)
    assert said[0].endswith("has ended: its ctx can no longer be used")
