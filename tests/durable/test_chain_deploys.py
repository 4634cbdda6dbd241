"""New code under jobs that are at the first step of a chain, or the first state of a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, Done, Fail, JobFailed, Next, Retry, Snooze, Step, Worker

ONCE = Retry(max_attempts=1)
LATER = Retry(max_attempts=3, initial="1h", jitter=0)


async def check(account: str) -> str:
    raise AssertionError(f"a job that has begun with another step does not begin with {account}")


async def fetch(url: str, depth: int = 1) -> str:
    return url * depth


async def store(body: str) -> str:
    return f"stored {body}"


async def waits_for_its_time(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "scheduled"


async def test_a_job_whose_first_step_failed_stays_at_it_when_a_deploy_inserts_a_step_before(
    app: App, dsn: str
) -> None:
    async def failing(url: str, depth: int = 1) -> str:
        raise ConnectionError("away")

    before = app.chain("ingest", Step(failing, name="fetch", retry=LATER), store)
    async with Worker(app):
        job = await before.aenqueue("ab", depth=2)
        await auntil(lambda: waits_for_its_time(job))
    info = await job.ainfo()
    assert info is not None
    assert (info.cursor, info.attempt) == (None, 1)
    assert [(step.key, step.value) for step in info.steps] == [("fetch", {"url": "ab", "depth": 2})]

    attempts: list[int] = []

    async def refetch(ctx: Context, url: str, depth: int = 1) -> str:
        attempts.append(ctx.attempt)
        return await fetch(url, depth)

    async with App(dsn) as later:
        later.chain("ingest", check, Step(refetch, name="fetch"), store)
        async with Worker(later):
            assert await later.job(job.id).aretry()
            assert await job.aresult(timeout="10s") == "stored abab"
    assert attempts == [2]


async def test_a_job_that_snoozed_in_its_first_step_stays_at_it(app: App, dsn: str) -> None:
    async def busy(url: str) -> str:
        raise Snooze("1h")

    before = app.chain("ingest", Step(busy, name="fetch"), store)
    async with Worker(app):
        job = await before.aenqueue("ab")
        await auntil(lambda: waits_for_its_time(job))
    assert (await job.awhy()).cause == "snooze"
    async with App(dsn) as later:
        later.chain("ingest", check, fetch, store)
        async with Worker(later):
            assert await later.job(job.id).arun_now()
            assert await job.aresult(timeout="10s") == "stored ab"


async def test_a_job_that_failed_in_its_first_step_is_retried_and_forked_from_it(app: App, dsn: str) -> None:
    async def failing(url: str) -> str:
        raise Fail("no")

    before = app.chain("ingest", Step(failing, name="fetch"), store)
    async with Worker(app):
        jobs = [await before.aenqueue("ab") for _ in range(3)]
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.aresult(timeout="10s")
    async with App(dsn) as later:
        started: list[str] = []

        async def start(url: str) -> str:
            started.append(url)
            return url

        later.chain("ingest", start, fetch, store)
        again, back, over = [later.job(job.id) for job in jobs]
        async with Worker(later):
            assert await again.aretry()
            assert await back.aretry(step="fetch")
            forks = [await later.afork(over, step="fetch")]
            for job in (again, back, *forks):
                assert await job.aresult(timeout="10s") == "stored ab"
            # Also once the job is past that step.
            forks.append(await later.afork(again, step="fetch"))
            assert await forks[1].aresult(timeout="10s") == "stored ab"
            assert started == []
            assert await over.aretry(from_start=True)
            assert await over.aresult(timeout="10s") == "stored ab"
            assert started == ["ab"]


async def test_a_step_in_a_transaction_that_a_job_began_with_gets_the_args_again(app: App, dsn: str) -> None:
    async def failing(ctx: Context, url: str) -> str:
        raise ConnectionError("away")

    before = app.chain("ingest", Step(failing, name="fetch", retry=LATER, transaction=True), store)
    async with Worker(app):
        job = await before.aenqueue("ab")
        await auntil(lambda: waits_for_its_time(job))

    async def refetch(ctx: Context, url: str) -> str:
        return f"{url} at {ctx.attempt}"

    async with App(dsn) as later:
        later.chain("ingest", check, Step(refetch, name="fetch", transaction=True, queue="slow"), store)
        async with Worker(later, queues=["default", "slow"]):
            assert await later.job(job.id).aretry()
            # Its queue is another now, and a job that goes there counts its attempts anew.
            assert await job.aresult(timeout="10s") == "stored ab at 1"


async def test_a_machine_that_failed_in_its_first_state_may_start_with_another_in_its_args(app: App) -> None:
    machine = app.machine("subscription")

    @machine.state(start=True)
    @dataclass
    class Trial:
        customer: str

        async def run(self) -> Next[Any]:
            raise Fail("no")

    @machine.state(start=True)
    @dataclass
    class Paid:
        customer: str

        async def run(self) -> Done[str]:
            return Done(f"{self.customer} paid")

    async with Worker(app):
        job = await machine.aenqueue(Trial("ada"))
        with pytest.raises(JobFailed):
            await job.aresult(timeout="10s")
        assert await job.aedit_args(Paid("eve"))
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == "eve paid"


async def test_a_chain_does_not_take_over_the_jobs_of_a_durable_function(app: App, dsn: str) -> None:
    @app.task(name="ingest")
    async def function(ctx: Context, url: str) -> None:
        await ctx.step(fetch, url)
        await ctx.receive("go")

    async with Worker(app):
        jobs = [await function.aenqueue("ab") for _ in range(2)]
        for job in jobs:
            await auntil(lambda job=job: waits(job))
    for job, transaction in zip(jobs, (False, True), strict=True):

        async def first(ctx: Context, url: str) -> str:
            return url

        async with App(dsn) as later:
            later.chain("ingest", Step(first, name="fetch", transaction=transaction), store, retry=ONCE)
            await later.job(job.id).asend("go", "on")
            async with Worker(later):
                with pytest.raises(JobFailed, match="has saved the steps of a durable function"):
                    await later.job(job.id).aresult(timeout="10s")


async def waits(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "waiting"


@pytest.mark.parametrize("option", ["queue", "priority"])
@pytest.mark.parametrize("transaction", [False, True])
async def test_a_job_goes_back_to_its_first_step_when_a_deploy_has_moved_that_step(
    app: App, dsn: str, conn: psycopg.Connection[Any], option: str, transaction: bool
) -> None:
    async def mid(body: str) -> str:
        raise Fail("no")

    before = app.chain("ingest", fetch, mid, store)
    async with Worker(app):
        job = await before.aenqueue("ab", depth=2)
        with pytest.raises(JobFailed):
            await job.aresult(timeout="10s")

    seen: list[Any] = []

    async def refetch(ctx: Context, url: str, depth: int = 1) -> str:
        # As a worker of schema 13 knows a job at its first step, which gets the args.
        seen.append(conn.execute("select cursor, input from stepwell.job").fetchone())
        raise ConnectionError("away")

    moved = Step(refetch, name="fetch", transaction=transaction, retry=LATER)
    moved = replace(moved, queue="slow") if option == "queue" else replace(moved, priority=7)
    async with App(dsn) as later:
        later.chain("ingest", check, moved, store)
        assert await later.job(job.id).aretry(step="fetch")
        async with Worker(later, queues=["default", "slow"]):
            await auntil(lambda: waits_for_its_time(job))
    info = await job.ainfo()
    assert info is not None
    assert (info.queue, info.priority) == (("slow", 0) if option == "queue" else ("default", 7))
    assert seen == [(None, None)]
    async with App(dsn) as last:
        last.chain("ingest", check, replace(moved, fn=fetch, transaction=False), store)
        async with Worker(last, queues=["default", "slow"]):
            assert await last.job(job.id).aretry()
            assert await job.aresult(timeout="10s") == "stored abab"
    info = await job.ainfo()
    assert info is not None
    assert [(step.key, step.value) for step in info.steps if step.key == "fetch"] == [
        ("fetch", {"url": "ab", "depth": 2})
    ]


@pytest.mark.parametrize("transaction", [False, True])
async def test_a_job_whose_args_do_not_fit_the_first_step_may_begin_with_one_that_a_deploy_inserts(
    app: App, dsn: str, transaction: bool
) -> None:
    async def measure(ctx: Context, size: int) -> int:
        return size

    async def size_of(text: str) -> int:
        return len(text)

    later_chain = app.chain("measure", size_of, measure)
    job = await later_chain.aenqueue("abc")
    async with App(dsn) as early:

        async def renamed(ctx: Context, text: int) -> int:
            return text

        early.chain("measure", Step(renamed, name="measure", transaction=transaction))
        async with Worker(early):
            with pytest.raises(JobFailed, match="Expected `int`"):
                await job.aresult(timeout="10s")
    async with Worker(app):
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == 3


@pytest.mark.parametrize("transaction", [False, True])
async def test_a_job_whose_args_could_not_be_opened_stays_at_the_step_that_it_began_with(
    app: App, dsn: str, transaction: bool
) -> None:
    class Reversed:
        name = "reversed"

        def encode(self, data: bytes) -> bytes:
            return data[::-1]

        decode = encode

    async def refetch(ctx: Context, url: str, depth: int = 1) -> str:
        return f"{await fetch(url, depth)} at {ctx.attempt}"

    step = Step(refetch, name="fetch", retry=LATER, transaction=transaction)
    app.chain("ingest", step, store)
    async with App(dsn, codecs=[Reversed()]) as sealing:
        job = await sealing.chain("ingest", step, store).aenqueue("ab")
    async with Worker(app):
        await auntil(lambda: waits_for_its_time(job))
    async with App(dsn, codecs=[Reversed()]) as later:
        later.chain("ingest", check, step, store)
        async with Worker(later):
            assert await later.job(job.id).aretry()
            assert await later.job(job.id).aresult(timeout="10s") == "stored ab at 2"
