"""Branches side by side: each finds its own steps again, in whatever order they take turns."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import AmbiguousKey, App, Context, JobFailed, Retry, SyncContext, Worker

ONCE = Retry(max_attempts=1)
SOON = Retry(max_attempts=9, initial="5ms", jitter=0)


async def test_branches_take_turns_in_any_order_and_find_their_steps(app: App) -> None:
    ran: list[str] = []

    async def work_on(name: str, stage: int) -> str:
        await asyncio.sleep(random.random() / 100)
        ran.append(f"{name}{stage}")
        if random.random() < 0.2:
            raise ConnectionError("chance")
        return f"{name}{stage}"

    @app.task(retry=Retry(max_attempts=100, initial="1ms", jitter=0))
    async def main(ctx: Context) -> list[list[str]]:
        async def branch(name: str) -> list[str]:
            return [await ctx.step(work_on, name, stage) for stage in range(4)]

        return await ctx.gather(*(branch(name) for name in "abcd"))

    async with Worker(app):
        job = await main.aenqueue()
        assert await job.aresult(timeout="20s") == [[f"{name}{stage}" for stage in range(4)] for name in "abcd"]
        info = await job.ainfo()
    assert info is not None
    assert sorted(step.key for step in info.steps) == sorted(
        f"gather[{place}]/work_on" + (f"#{stage}" if stage > 1 else "") for place in range(4) for stage in range(1, 5)
    )


@pytest.mark.slow
async def test_a_job_sleeps_until_the_first_branch_can_go_on(app: App) -> None:
    order: list[str] = []

    def note(name: str) -> None:
        order.append(name)

    @app.task
    async def main(ctx: Context) -> None:
        async def nap(name: str, delay: str) -> None:
            await ctx.sleep(delay)
            await ctx.step(note, name)

        async def wait() -> None:
            await ctx.wait_for("go")
            await ctx.step(note, "event")

        await ctx.gather(nap("long", "1.6s"), nap("short", "1.1s"), wait())

    async with Worker(app):
        job = await main.aenqueue()
        await auntil(lambda: waits(job))
        await app.aemit("go")
        await job.aresult(timeout="10s")
    assert order == ["event", "short", "long"]


async def waits(job: Any) -> bool:
    info = await job.ainfo()
    return info.state == "waiting"


async def waits_for(job: Any, event: str) -> bool:
    info = await job.ainfo()
    return info.state == "waiting" and any(step.pending and step.event == event for step in info.steps)


async def test_map_runs_a_step_for_each_item_and_no_more_than_its_limit_at_once(app: App) -> None:
    most = now = 0

    async def work_on(item: str) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1
        return item.upper()

    @app.task
    async def main(ctx: Context, items: list[str]) -> list[str]:
        return await ctx.map(work_on, items, limit=3)

    async with Worker(app):
        job = await main.aenqueue(list("abcdefgh"))
        assert await job.aresult(timeout="10s") == list("ABCDEFGH")
        info = await job.ainfo()
    assert most == 3
    assert info is not None
    assert {step.key for step in info.steps} == {f"map:work_on[{item}]/work_on" for item in "abcdefgh"}


async def test_map_with_a_context_has_branches_and_its_limit_counts_those_that_wait(app: App) -> None:
    spawned: list[int] = []

    @app.task
    async def child(n: int) -> int:
        spawned.append(n)
        return n * 10

    async def item(ctx: Context, n: int) -> int:
        return 1 + await ctx.spawn(child, n)

    @app.task
    async def main(ctx: Context) -> list[int]:
        return await ctx.map(item, [3, 1, 2], limit=1)

    async with Worker(app):
        assert await (await main.aenqueue()).aresult(timeout="10s") == [31, 11, 21]
    assert spawned == [3, 1, 2]


async def test_the_first_branch_wins_in_each_run(app: App) -> None:
    runs: list[int] = []

    async def slow() -> str:
        await asyncio.sleep(30)
        return "slow"

    def fast() -> str:
        return "fast"

    @app.task
    async def sleepy(ctx: Context) -> None:
        await ctx.sleep("1d")

    @app.task(retry=SOON)
    async def main(ctx: Context) -> tuple[int, str, int]:
        runs.append(1)
        one = await ctx.first(ctx.step(slow), ctx.step(fast))
        two = await ctx.first(ctx.spawn(sleepy), ctx.sleep("1.1s"), ctx.wait_for("never"))
        if ctx.attempt == 1:
            raise ValueError
        return one.branch, one.value, two.branch

    async with Worker(app):
        job = await main.aenqueue()
        assert await job.aresult(timeout="10s") == (1, "fast", 1)
        info = await job.ainfo()
        assert info is not None
        child = next(step.child_id for step in info.steps if step.child_id)
        loser = await app.job(child or "").ainfo()
    assert loser is not None
    assert loser.state == "cancelled"


async def test_children_of_a_branch_that_lost_are_cancelled_too(app: App) -> None:
    @app.task
    async def sleepy(ctx: Context, n: int) -> None:
        await ctx.sleep("1d")

    @app.task(retry=SOON)
    async def main(ctx: Context) -> int:
        async def helped(first: int) -> None:
            await ctx.gather(ctx.spawn(sleepy, first), ctx.spawn(sleepy, first + 1))

        # Of the first the children are from this run, of the second from the one before the sleep.
        at_once = await ctx.first(helped(1), ctx.step(asyncio.sleep, 0))
        later = await ctx.first(helped(3), ctx.sleep("1.1s"))
        ctx.spawn(sleepy, 5)
        return at_once.branch + later.branch

    async with Worker(app):
        job = await main.aenqueue()
        assert await job.aresult(timeout="10s") == 2
        info = await job.ainfo()
        assert info is not None
        states: dict[int, str] = {}
        for step in info.steps:
            if step.child_id is not None:
                child = await app.job(step.child_id).ainfo()
                assert child is not None
                states[child.args["n"]] = child.state
    assert states.pop(5) in ("ready", "running", "waiting")
    assert states.keys() == {1, 2, 3, 4}
    assert set(states.values()) == {"cancelled"}


async def test_a_thread_that_lost_spawns_nothing_any_more(app: App, conn: psycopg.Connection[Any]) -> None:
    decided, gone_on = threading.Event(), threading.Event()

    @app.task
    async def child() -> None: ...

    @app.task
    def main(ctx: SyncContext) -> int:
        def slow() -> None:
            decided.wait(10)
            try:
                ctx.spawn(child)
            finally:
                gone_on.set()

        won = ctx.first(slow, lambda: None).branch
        decided.set()
        gone_on.wait(10)
        return won

    async with Worker(app):
        assert await (await main.aenqueue()).aresult(timeout="10s") == 1
    assert conn.execute("select count(*) from stepwell.jobs where task like '%child'").fetchone() == (0,)


async def test_all_branches_end_before_the_error_of_one_is_raised(app: App) -> None:
    ran: list[str] = []

    async def bad() -> None:
        raise ValueError("bad")

    async def good() -> None:
        await asyncio.sleep(0.02)
        ran.append("good")

    @app.task(retry=ONCE)
    async def main(ctx: Context) -> None:
        await ctx.gather(ctx.step(bad), ctx.step(good))

    async with Worker(app):
        with pytest.raises(JobFailed, match="ValueError: bad"):
            await (await main.aenqueue()).aresult(timeout="10s")
    assert ran == ["good"]


async def test_steps_side_by_side_that_could_be_mistaken_are_refused_in_the_first_run_and_for_good(app: App) -> None:
    async def ask(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    @app.task
    async def same_name(ctx: Context) -> None:
        await asyncio.gather(ctx.step(ask, 1), ctx.step(ask, 2))

    @app.task
    async def same_key(ctx: Context) -> None:
        await ctx.step(ask, 1, key="x")
        await ctx.step(ask, 2, key="x")

    @app.task
    async def no_name(ctx: Context) -> None:
        await ctx.step(lambda: 1)

    @app.task
    async def same_items(ctx: Context) -> None:
        await ctx.map(ask, [1, 1])

    @app.task
    async def told_apart(ctx: Context) -> list[int]:
        return list(await asyncio.gather(ctx.step(ask, 1, key="one"), ctx.step(ask, 2, key="two")))

    async with Worker(app):
        for task, said in (
            (same_name, "ctx.gather or ctx.map, or give each a key="),
            (same_key, "two steps of task 'same_key' have the key 'x': give each a key= of its own"),
            (no_name, "a lambda has no name"),
            (same_items, "two items of ctx.map have the key '1'"),
        ):
            with pytest.raises(JobFailed) as raised:
                await (await task.aenqueue()).aresult(timeout="10s")
            assert raised.value.type == f"stepwell.errors.{AmbiguousKey.__name__}"
            assert said in raised.value.message
        assert await (await told_apart.aenqueue()).aresult(timeout="10s") == [1, 2]


async def test_a_task_group_of_the_users_may_wait(app: App) -> None:
    @app.task
    async def main(ctx: Context) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.wait_for("one"))
            two = group.create_task(ctx.wait_for("two"))
        return [one.result().value, two.result().value]

    async with Worker(app):
        await app.aemit("one", value=1)
        await app.aemit("two", value=2)
        assert await (await main.aenqueue()).aresult(timeout="10s") == [1, 2]


@pytest.mark.counts_runs
@pytest.mark.counts_runs
async def test_branches_that_wait_for_some_of_the_same_children_do_not_turn_in_circles(app: App) -> None:
    runs: list[int] = []
    go_on = asyncio.Event()

    @app.task
    async def child(n: int) -> int:
        await go_on.wait()
        return n

    @app.task
    async def parent(ctx: Context) -> list[list[int]]:
        runs.append(1)
        a, b, c = (ctx.spawn(child, n) for n in range(3))

        async def both(one: Awaitable[int], other: Awaitable[int]) -> list[int]:
            return list(await ctx.gather(one, other))

        return list(await ctx.gather(both(a, b), both(b, c), both(a, c), both(b, a)))

    async with Worker(app):
        job = await parent.aenqueue()
        await auntil(lambda: waits(job))
        go_on.set()
        assert await job.aresult(timeout="10s") == [[0, 1], [1, 2], [0, 2], [1, 0]]
    # The first, one for each child that ends, and one for each end that came while it ran.
    assert len(runs) <= 7


async def test_what_a_branch_that_lost_was_sent_and_has_not_used_is_there_for_others(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> list[Any]:
        async def listen() -> Any:
            used = await ctx.receive("used")
            await ctx.step(str, used.value)
            return await ctx.receive("word")

        both = await ctx.first(ctx.receive("go"), listen())
        later = await ctx.receive("word", timeout="0s")
        again = await ctx.receive("used", timeout="0s")
        return [both.branch, both.value.value, later.value, again.timed_out]

    async with Worker(app):
        job = await work.aenqueue()
        await job.asend("used", 1)
        await auntil(lambda: waits_for(job, "word"))
    # Both have come when it runs again: the first branch wins.
    await job.asend("word", "kept")
    await job.asend("go", "first")
    async with Worker(app):
        assert await job.aresult(timeout="10s") == [0, "first", "kept", True]


async def test_branches_that_wait_for_the_same_child_wait_once(app: App) -> None:
    @app.task
    async def child() -> int:
        await asyncio.sleep(0.2)
        return 7

    @app.task
    async def main(ctx: Context) -> list[int]:
        one = ctx.spawn(child)

        async def branch(more: int) -> int:
            return more + await one

        async def both() -> int:
            return sum(await ctx.gather(one, ctx.spawn(child)))

        return list(await ctx.gather(branch(1), branch(2), both()))

    async with Worker(app):
        job = await main.aenqueue()
        assert await job.aresult(timeout="10s") == [8, 9, 14]
        info = await job.ainfo()
    assert info is not None
    assert info.epoch <= 3


@pytest.mark.slow
async def test_threads_of_an_async_handler_that_could_be_mistaken_are_refused_too(app: App) -> None:
    both = threading.Barrier(2, timeout=10)

    @app.task(retry=ONCE)
    async def main(ctx: Context) -> None:
        await ctx.now()

        def draw() -> None:
            both.wait()
            ctx.random()
            both.wait()

        await asyncio.gather(asyncio.to_thread(draw), asyncio.to_thread(draw))

    async with Worker(app):
        with pytest.raises(JobFailed, match="two steps named 'random'"):
            await (await main.aenqueue()).aresult(timeout="20s")
