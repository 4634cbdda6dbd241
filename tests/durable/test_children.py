"""Children: spawned once, waited for without a slot, and cancelled with their parent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, Context, JobCancelled, JobFailed, Retry, Worker

ONCE = Retry(max_attempts=1)
SOON = Retry(max_attempts=5, initial="10ms", jitter=0)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_all_children_that_failed_side_by_side_are_spawned_anew_with_the_first(app: App, by_hand: bool) -> None:
    broken = True
    ran: list[int] = []

    @app.task(retry=ONCE)
    async def child(n: int) -> int:
        ran.append(n)
        if broken and n % 2:
            raise ValueError(f"child {n}")
        return n

    async def stubborn() -> int:
        ran.append(-1)
        if broken:
            raise ConnectionError
        return -1

    @app.task(retry=ONCE if by_hand else Retry(max_attempts=2, initial="1s", jitter=0))
    async def parent(ctx: Context) -> Any:
        with contextlib.suppress(JobFailed):  # that stays so
            await ctx.spawn(child, 99)
        beside = ctx.gather(ctx.spawn(child, 9), ctx.step(stubborn, retry=Retry(max_attempts=2, initial="1ms")))
        return await ctx.gather(*[ctx.spawn(child, n) for n in range(8)], beside)

    async with Worker(app):
        job = await parent.aenqueue()
        await auntil(lambda: failed_at_all(job))
        broken = False
        if by_hand:
            with pytest.raises(JobFailed, match="child 1"):
                await job.aresult(timeout="10s")
            assert await job.aretry()
        assert await job.aresult(timeout="10s") == [*range(8), [9, -1]]
    assert sorted(ran) == sorted([99, *range(8), 9, -1, -1, 1, 3, 5, 7, 9, -1])


async def failed_at_all(job: Any) -> bool:
    info = await job.ainfo()
    return bool(info.failures)


async def test_one_that_is_spawned_while_another_is_put_in_does_not_wait_to_be_awaited(app: App) -> None:
    began = [asyncio.Event(), asyncio.Event()]

    @app.task
    async def child(place: int) -> None:
        began[place].set()

    @app.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        first = ctx.spawn(child, 0)
        await asyncio.sleep(0)  # the first is on its way now
        second = ctx.spawn(child, 1)

        async def both() -> None:
            for one in began:
                await one.wait()

        await asyncio.wait_for(both(), 10)
        await ctx.gather(first, second)

    async with Worker(app):
        await (await parent.aenqueue()).aresult(timeout="20s")


@pytest.mark.slow
async def test_children_run_beside_each_other_and_their_results_come_in_order(app: App) -> None:
    @app.task
    async def square(n: int) -> int:
        await asyncio.sleep(0.05 / (n + 1))
        return n * n

    @app.task(retry=SOON)
    async def total(ctx: Context) -> list[int]:
        children = [ctx.spawn(square, n) for n in range(5)]
        if ctx.attempt == 1:
            raise ValueError
        return [*await ctx.gather(*children), await ctx.spawn(square, n=9)]

    async with Worker(app, concurrency=2):
        job = await total.aenqueue()
        assert await job.aresult(timeout="10s") == [0, 1, 4, 9, 16, 81]
        info = await job.ainfo()
        assert info is not None
        assert [step.key for step in info.steps] == ["square", *(f"square#{n}" for n in range(2, 7))]
        child = await app.job(info.steps[0].child_id or "").ainfo()
    assert child is not None
    assert child.parent_id == job.id


async def test_a_child_has_no_connection_of_its_own(app: App, conn: psycopg.Connection[Any]) -> None:
    said: list[str] = []

    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def main(ctx: Context) -> None:
        for spawn in (
            lambda: ctx.spawn(work.using(connection=conn), 1),
            lambda: ctx.spawn_many(work.using(connection=conn), [{"n": 1}]),
        ):
            with pytest.raises(ConfigError, match="leave out using") as refused:
                spawn()
            said.append(str(refused.value))

    async with Worker(app):
        await (await main.aenqueue()).aresult(timeout="10s")
    assert len(said) == 2
    with pytest.raises(ConfigError, match="where it is enqueued"):
        work.using(connection=conn).call(1)


async def test_a_parent_waits_without_a_slot(app: App) -> None:
    @app.task
    async def deeper(ctx: Context, depth: int) -> int:
        return 1 + await ctx.spawn(deeper, depth - 1) if depth else 0

    async with Worker(app, concurrency=1):
        assert await (await deeper.aenqueue(6)).aresult(timeout="20s") == 6


async def test_a_failure_of_a_child_reaches_the_parent(app: App) -> None:
    @app.task(retry=ONCE)
    async def bad() -> None:
        raise ValueError("no good")

    @app.task(keep_failed=0, retry=ONCE)
    async def forgotten() -> None:
        raise KeyError("x")

    @app.task
    async def work(ctx: Context) -> list[str]:
        said: list[str] = []
        for task in (bad, forgotten):
            try:
                await ctx.spawn(task)
            except JobFailed as error:
                said.append(f"{error.type}: {error.message}")
        both = await ctx.gather(ctx.spawn(bad), ctx.spawn(forgotten), return_exceptions=True)
        return said + [type(error).__name__ for error in both]

    async with Worker(app):
        result = await (await work.aenqueue()).aresult(timeout="10s")
    assert result == ["ValueError: no good", "KeyError: 'x'", "JobFailed", "JobFailed"]


async def test_a_child_that_is_cancelled_is_said_to_be(app: App) -> None:
    @app.task
    async def sleepy(ctx: Context) -> None:
        await ctx.sleep("1d")

    @app.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.spawn(sleepy)
        except JobCancelled as error:
            return str(error.reason)
        raise AssertionError

    async with Worker(app):
        job = await work.aenqueue()
        child = await auntil(lambda: child_of(job))
        await app.job(child or "").acancel("not needed")
        assert await job.aresult(timeout="10s") == "not needed"
        info = await job.ainfo()
    assert info is not None
    assert [step.error for step in info.steps] == ["cancelled: not needed"]


async def child_of(job: Any) -> str | None:
    info = await job.ainfo()
    return next((str(step.child_id) for step in info.steps if step.child_id), None)


async def test_a_cancel_reaches_children_and_their_children(app: App, conn: psycopg.Connection[Any]) -> None:
    running = asyncio.Event()

    @app.task
    async def leaf(ctx: Context, long: bool) -> None:
        if long:
            running.set()
            await asyncio.sleep(60)
        await ctx.sleep("1d")

    @app.task
    async def middle(ctx: Context) -> None:
        await ctx.gather(ctx.spawn(leaf, True), ctx.spawn(leaf, False))

    @app.task
    async def root(ctx: Context) -> None:
        await ctx.gather(ctx.spawn(middle), ctx.spawn(middle))

    async with Worker(app):
        job = await root.aenqueue()
        await running.wait()
        await auntil(lambda: conn.execute("select count(*) from stepwell.job").fetchone() == (7,))
        assert await job.acancel("enough")
        await auntil(lambda: conn.execute("select count(*) from stepwell.job").fetchone() == (0,))
    states = conn.execute("select state::text, count(*) from stepwell.history group by 1").fetchall()
    assert states == [("cancelled", 7)]
    assert conn.execute("select count(*) from stepwell.step").fetchone() == (0,)


async def test_children_of_a_parent_that_failed_are_cancelled_and_those_of_one_that_succeeded_go_on(app: App) -> None:
    done = asyncio.Event()

    @app.task
    async def sleepy(ctx: Context) -> None:
        await ctx.sleep("1d")

    @app.task
    async def quick() -> None:
        done.set()

    @app.task(retry=ONCE)
    async def fails(ctx: Context) -> None:
        ctx.spawn(sleepy)
        raise ValueError

    @app.task
    async def leaves(ctx: Context) -> None:
        ctx.spawn(quick.using(delay="50ms"))

    async with Worker(app):
        job = await fails.aenqueue()
        with pytest.raises(JobFailed):
            await job.aresult(timeout="10s")
        info = await job.ainfo()
        assert info is not None
        child = app.job(info.steps[0].child_id or "")
        with pytest.raises(JobCancelled, match="did not succeed"):
            await child.aresult(timeout="10s")
        await (await leaves.aenqueue()).aresult(timeout="10s")
        await asyncio.wait_for(done.wait(), 10)


@pytest.mark.slow
@pytest.mark.counts_runs
async def test_ten_thousand_children_of_one_parent(app: App) -> None:
    runs: list[int] = []

    @app.task(keep=0)
    async def one(n: int) -> int:
        return n

    @app.task(timeout="2m")
    async def parent(ctx: Context) -> int:
        runs.append(1)
        children = ctx.spawn_many(one, [{"n": n} for n in range(10_000 - 1)])
        return sum(await ctx.gather(*children))

    async with Worker(app, concurrency=200):
        job = await parent.aenqueue()
        assert await job.aresult(timeout="60s") == sum(range(10_000 - 1))
    # Not woken by each of them.
    assert len(runs) == 2


async def test_a_large_result_of_a_child_is_read_when_it_is_asked_for(app: App) -> None:
    @app.task
    async def big() -> str:
        return "x" * 100_000

    @app.task
    async def work(ctx: Context) -> int:
        return len(await ctx.spawn(big))

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == 100_000
        info = await job.ainfo()
    assert info is not None
    assert (info.steps[0].large, info.steps[0].value) == (True, None)
