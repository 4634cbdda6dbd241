"""What a handler has caught once it catches in every run, and never goes both ways."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, JobFailed, Retry, Worker

SOON = Retry(max_attempts=5, initial="5ms", jitter=0)
ONCE = Retry(max_attempts=1)


class Once:
    """Fails the first time it is called."""

    def __init__(self) -> None:
        self.calls = 0

    async def charge(self) -> str:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("refused")
        return "charged"


@pytest.mark.parametrize("then", ["child", "gather", "map", "sleep"])
async def test_an_error_is_saved_before_the_job_waits_for_whatever_it_is(app: App, then: str) -> None:
    once = Once()

    @app.task
    async def kid() -> None:
        pass

    @app.task
    async def work(ctx: Context) -> str:
        async def nap(_: Any = None) -> None:
            await ctx.sleep("1.1s")

        async def nap_of(ctx: Context, _: int) -> None:
            await ctx.sleep("1.1s")

        child = ctx.spawn(kid)
        try:
            return await ctx.step(once.charge)
        except ConnectionError:
            match then:
                case "child":
                    await child
                case "gather":
                    await ctx.gather(nap())
                case "map":
                    await ctx.map(nap_of, [1])
                case _:
                    await nap()
        return "went without"

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == "went without"
    assert once.calls == 1


@pytest.mark.slow
async def test_a_branch_that_failed_is_not_run_again_when_another_wakes(app: App) -> None:
    once = Once()

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        async def naps() -> None:
            for _ in range(2):
                await ctx.sleep("1.05s")

        await ctx.gather(ctx.step(once.charge), naps())

    async with Worker(app):
        with pytest.raises(JobFailed, match="refused"):
            await (await work.aenqueue()).aresult(timeout="10s")
    assert once.calls == 1


async def test_a_transaction_that_failed_and_was_caught_is_not_tried_in_the_next_run(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create table seat (n int primary key)")
    conn.execute("insert into seat values (1)")

    @app.task
    async def work(ctx: Context) -> str:
        try:
            async with ctx.transaction("take") as tx:
                await tx.execute("insert into seat values (1)")
            return "has a seat"
        except psycopg.errors.UniqueViolation:
            conn.execute("delete from seat")
            await ctx.sleep("1.1s")
            return "refunded"

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == "refunded"
    assert conn.execute("select count(*) from seat").fetchone() == (0,)


async def test_a_job_that_failed_by_its_child_spawns_it_anew_when_it_is_tried_again(app: App) -> None:
    once = Once()

    @app.task(retry=ONCE)
    async def child() -> str:
        return await once.charge()

    @app.task(retry=SOON)
    async def parent(ctx: Context) -> str:
        return await ctx.spawn(child)

    async with Worker(app):
        assert await (await parent.aenqueue()).aresult(timeout="10s") == "charged"
    assert once.calls == 2


async def test_the_waits_of_a_branch_that_lost_take_nothing_from_others(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.first(ctx.receive("sig"), ctx.sleep("1.1s"), ctx.wait_for("event"))
        return [first.branch, (await ctx.receive("sig")).value, (await ctx.wait_for("event")).value]

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: at(job, "receive:sig"))
        await job.asend("sig", "sent")
        await app.aemit("event", value="emitted")
        assert await job.aresult(timeout="10s") == [1, "sent", "emitted"]


async def at(job: Any, key: str) -> bool:
    info = await job.ainfo()
    return info is not None and any(step.key == key for step in info.steps)


async def test_what_a_branch_did_that_lost_is_undone(app: App) -> None:
    undone: list[str] = []

    def book(what: str) -> str:
        return what

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        async def hotel() -> None:
            await ctx.step(book, "hotel", undo=undone.append)
            await ctx.sleep("1d")

        await ctx.first(hotel(), ctx.sleep("1.1s"))
        raise ValueError("no")

    async with Worker(app):
        with pytest.raises(JobFailed, match="no"):
            await (await work.aenqueue()).aresult(timeout="10s")
    assert undone == ["hotel"]


async def test_a_branch_that_swallows_its_wait_waits_all_the_same(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> list[Any]:
        async def branch() -> Any:
            try:
                return (await ctx.wait_for("go")).value
            except:  # noqa: E722
                return "never"

        return list(await ctx.gather(branch()))

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: at(job, "gather[0]/wait:go"))
        await app.aemit("go", value=1)
        assert await job.aresult(timeout="10s") == [1]
