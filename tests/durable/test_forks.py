"""Forks: new jobs that start with the saved steps of another."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, Fail, JobFailed, Retry, SyncContext, Worker
from stepwell.testing import Clock

ONCE = Retry(max_attempts=1)


class Shop:
    """Steps with effects, and what was done."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def charge(self, token: str) -> str:
        self.log.append(f"charge {token}")
        return f"payment {len(self.log)}"

    def refund(self, payment: str) -> None:
        self.log.append(f"refund {payment}")

    def ship(self, payment: str) -> str:
        self.log.append(f"ship for {payment}")
        return "shipped"


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_a_fork_has_all_from_before_its_step(app: App) -> None:
    drawn: list[Any] = []

    def ask(n: int) -> int:
        drawn.append(n)
        return len(drawn)

    @app.task
    async def work(ctx: Context) -> list[Any]:
        chance = str(ctx.uuid())
        return [chance, await ctx.step(ask, 1), await ctx.step(ask, 2), str(ctx.uuid())]

    async with Worker(app):
        job = await work.aenqueue()
        chance, _, _, later = await job.aresult(timeout="10s")
        fork = await app.afork(job.id, step="ask#2")
        forked = await fork.aresult(timeout="10s")
        assert forked[:3] == [chance, 1, 3]
        assert forked[3] != later
        info = await fork.ainfo()
        with pytest.raises(LookupError, match="has no step 'never'"):
            await app.afork(job, step="never")
        with pytest.raises(LookupError, match="there is no job"):
            await app.afork("01a1e0af-c50b-7b66-94ec-ea018e1e252e", step="ask")
    assert info is not None
    assert info.forked_from == job.id


@pytest.mark.parametrize("plain", [False, True])
async def test_a_fork_at_the_failed_step_draws_what_that_step_was_given(app: App, plain: bool) -> None:
    given: list[tuple[UUID, float]] = []

    def pay(token: UUID, jitter: float) -> None:
        given.append((token, jitter))
        raise ConnectionError("it may have paid")

    @app.task(retry=Retry(max_attempts=2, initial="5ms"))
    async def work(ctx: Context) -> None:
        await ctx.step(len, "x")
        await ctx.step(pay, ctx.uuid(), ctx.random())

    @app.task(retry=Retry(max_attempts=2, initial="5ms"))
    def plain_work(ctx: SyncContext) -> None:
        ctx.step(len, "x")
        ctx.step(pay, ctx.uuid(), ctx.random())

    async with Worker(app):
        job = await (plain_work if plain else work).aenqueue()
        with pytest.raises(JobFailed):
            await job.aresult(timeout="30s")
        with pytest.raises(JobFailed):
            await (await app.afork(job, step="pay")).aresult(timeout="30s")
    assert len(given) == 4
    assert len(set(given)) == 1


async def test_a_fork_has_all_tries_of_its_step(app: App) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) % 2:
            raise ConnectionError("busy")
        return "done"

    @app.task
    async def work(ctx: Context) -> str:
        # So long a pause that the job is handed back: then each try has an earlier place than the step itself.
        return await ctx.step(flaky, retry=Retry(max_attempts=2, initial="1m"))

    async def handed_back(job: Any) -> bool:
        info = await job.ainfo()
        return info is not None and info.state not in ("ready", "running")

    async with Worker(app), Clock(app) as clock:
        job = await work.aenqueue()
        await auntil(lambda: handed_back(job))
        await clock.advance("2m")
        assert await job.aresult(timeout="10s") == "done"
        fork = await app.afork(job, step="flaky")
        await auntil(lambda: handed_back(fork))
        await clock.advance("2m")
        assert await fork.aresult(timeout="10s") == "done"
    assert len(tries) == 4


async def test_a_fork_does_not_undo_what_the_other_job_did(app: App, shop: Shop) -> None:
    broken = False

    @app.task(retry=ONCE)
    async def order(ctx: Context) -> str:
        await ctx.step(shop.charge, "t", undo=shop.refund)
        await ctx.step(len, "", key="count")
        if broken:
            raise Fail("no")
        return "done"

    async with Worker(app):
        job = await order.aenqueue()
        assert await job.aresult(timeout="10s") == "done"
        broken = True
        fork = await app.afork(job, step="count")
        with pytest.raises(JobFailed):
            await fork.aresult(timeout="10s")
    assert shop.log == ["charge t"]


async def test_the_fork_of_a_job_that_was_compensated_starts_over(app: App, shop: Shop) -> None:
    open_again = False

    @app.task(retry=ONCE)
    async def order(ctx: Context) -> str:
        token = str(ctx.uuid())
        payment = await ctx.step(shop.charge, token, undo=shop.refund)
        if not open_again:
            raise Fail("the shop is closed")
        return await ctx.step(shop.ship, payment)

    async with Worker(app):
        job = await order.aenqueue()
        with pytest.raises(JobFailed, match="closed"):
            await job.aresult(timeout="10s")
        open_again = True
        fork = await app.afork(job, step="undo:charge")
        assert await fork.aresult(timeout="10s") == "shipped"
    first, refund, second, ship = shop.log
    assert refund == "refund payment 1"
    assert ship == "ship for payment 3"
    # A token that was saved before the undo is used up as well.
    assert first != second


async def test_the_fork_of_a_plain_job_that_is_being_compensated_starts_over(app: App, shop: Shop) -> None:
    forks: list[Any] = []

    def refund(payment: str) -> None:
        if not forks:
            forks.append(app.fork(job, step="ship"))
        shop.refund(payment)

    @app.task(retry=ONCE)
    def order(ctx: SyncContext, closed: bool) -> str:
        payment = ctx.step(shop.charge, "t", undo=refund)
        shipped = ctx.step(shop.ship, payment)
        if closed and not forks:
            raise Fail("lost on the way")
        return shipped

    async with Worker(app):
        job = await order.aenqueue(closed=True)
        with pytest.raises(JobFailed, match="lost"):
            await job.aresult(timeout="10s")
        assert await forks[0].aresult(timeout="10s") == "shipped"
    assert shop.log.count("charge t") == 2


async def test_a_fork_of_the_run_of_a_schedule_has_its_tick_and_is_no_run_of_it(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.schedule("1h", name="hourly", overlap="skip")
    @app.task
    async def report(ctx: Context) -> str:
        await ctx.step(len, "", key="count")
        assert ctx.scheduled_for is not None
        return ctx.scheduled_for.isoformat()

    async with Worker(app):
        job = await app.schedule_named("hourly").atrigger()
        at = await job.aresult(timeout="10s")
        fork = await app.afork(job, step="count")
        assert await fork.aresult(timeout="10s") == at
        again = await app.afork(fork, step="count")
        assert await again.aresult(timeout="10s") == at
    assert conn.execute(
        "select count(*), count(schedule_id), count(scheduled_for) from stepwell.history"
    ).fetchone() == (3, 1, 3)
