"""A step that is made and never awaited does not let its job succeed."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from waiting import Heard, auntil

from stepwell import App, Context, JobFailed, Retry, SyncContext, Worker
from stepwell.telemetry.jobs import AttemptFailed

TWICE = Retry(max_attempts=2, initial="5ms", jitter=0)


def charge(cents: int) -> int:
    return cents


async def branch(ctx: Context) -> int:
    return await ctx.step(charge, 1)


NONE: list[Any] = []
FORGOTTEN: list[tuple[Callable[[Context], Any], str]] = [
    (lambda ctx: ctx.step(charge, 300), r"ctx\.step\(charge\)"),
    (lambda ctx: ctx.step(lambda: 1, key="pay"), r"ctx\.step\('pay'\)"),
    (lambda ctx: ctx.sleep("1h"), r"ctx\.sleep\(\)"),
    (lambda ctx: ctx.wait_for("paid"), r"ctx\.wait_for\('paid'\)"),
    (lambda ctx: ctx.receive("hint"), r"ctx\.receive\('hint'\)"),
    (lambda ctx: ctx.now(), r"ctx\.now\(\)"),
    (lambda ctx: ctx.map(charge, [1, 2]), r"ctx\.map\(charge\)"),
    (lambda ctx: ctx.gather(*NONE), r"ctx\.gather\(\)"),
    (lambda ctx: asyncio.create_task(ctx.step(charge, 300)), r"ctx\.step\(charge\)"),
    (lambda ctx: ctx.transaction("book"), r"ctx\.transaction\('book'\)"),
]


async def test_a_step_or_wait_that_is_never_awaited_fails_the_attempt_by_name(app: App) -> None:
    @app.task(retry=TWICE)
    async def work(ctx: Context, n: int, first: bool) -> str:
        if first:
            await ctx.step(charge, 1, key="before")
        FORGOTTEN[n][0](ctx)
        return "all done"

    async with Worker(app) as worker:
        heard = Heard(worker)
        for n, (_, named) in enumerate(FORGOTTEN):
            for first in (False, True):
                with pytest.raises(JobFailed, match=f"NotAwaited: task .* never awaited {named}: that did not run"):
                    await (await work.aenqueue(n, first)).aresult("10s")
    assert len(heard.of(AttemptFailed)) == 4 * len(FORGOTTEN)


async def leave_running(ctx: Context) -> asyncio.Task[None]:
    """Begin a step that does not end by itself."""
    began = asyncio.Event()

    async def slow() -> None:
        began.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(ctx.step(slow))
    await began.wait()
    return running


async def test_a_step_that_still_runs_when_the_function_returns_fails_the_attempt_by_name(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return f"all done but {await leave_running(ctx)}"

    async with Worker(app):
        with pytest.raises(JobFailed, match=r"returned while ctx\.step\(.*slow\) had not ended: await it"):
            await (await work.aenqueue()).aresult("10s")


async def test_a_step_that_was_cancelled_when_the_function_returns_is_no_fault(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        (await leave_running(ctx)).cancel()
        return "enough"

    async with Worker(app):
        assert await (await work.aenqueue()).aresult("10s") == "enough"


async def test_returning_a_step_instead_of_its_value_says_so(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> Any:
        return ctx.step(charge, 300)

    async with Worker(app):
        with pytest.raises(JobFailed, match=r"never awaited ctx\.step\(charge\)"):
            await (await work.aenqueue()).aresult("10s")


async def test_a_plain_task_that_never_enters_its_transaction_fails(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    def work(ctx: SyncContext) -> None:
        ctx.transaction("book")

    async with Worker(app):
        with pytest.raises(JobFailed, match=r"never awaited ctx\.transaction\('book'\)"):
            await (await work.aenqueue()).aresult("10s")


@pytest.mark.counts_runs
async def test_what_others_await_or_let_go_is_no_fault(app: App) -> None:
    @app.task
    async def child() -> int:
        return 7

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> list[Any]:
        ctx.spawn(child)  # it is enqueued all the same
        first, second = ctx.step(charge, 1), ctx.step(charge, 2, key="second")
        found: list[Any] = [await second, await first]
        found += await ctx.gather(ctx.step(charge, 3), branch(ctx), ctx.gather(ctx.step(charge, 4)))
        found += await ctx.map(charge, [5, 6], limit=1)
        found.append((await ctx.first(ctx.step(charge, 8, key="quick"), ctx.wait_for("never"), ctx.sleep("1h"))).value)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ctx.gather(ctx.step(charge, 9), ctx.sleep(0.9))
        ctx.step(charge, 10).close()
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(charge, 11, key="in a group"))
        made = [ctx.step(charge, n, key=f"made {n}") for n in range(200)]
        found.append(sum(await ctx.gather(*made)))
        return found

    async with Worker(app):
        assert await (await work.aenqueue()).aresult("20s") == [2, 1, 3, 1, [4], 5, 6, 8, sum(range(200))]


async def test_what_is_not_awaited_yet_when_the_job_waits_is_awaited_in_a_later_run(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        later = ctx.step(charge, 5)
        await ctx.sleep("1.01s")
        return await later

    async with Worker(app):
        assert await (await work.aenqueue()).aresult("10s") == 5


@pytest.mark.parametrize("how", ["lost", "forgotten", "refused"])
async def test_the_branches_of_what_is_never_awaited_are_closed_with_it(app: App, how: str) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        def nested() -> Any:
            return ctx.gather(ctx.first(ctx.wait_for("x"), ctx.wait_for("y")), ctx.sleep("1h"))

        if how == "lost":
            await ctx.first(nested(), ctx.step(charge, 1))
            await ctx.sleep("1.01s")
        elif how == "forgotten":
            nested()
        else:
            await ctx.first(nested(), [])  # pyright: ignore[reportArgumentType]

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with Worker(app):
            job = await work.aenqueue()
            await auntil(lambda: finished(job))
        gc.collect()
    assert [str(one.message) for one in told if "never awaited" in str(one.message)] == []


async def finished(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state in ("succeeded", "failed")
