"""The limit of a queue, set at run time: it holds for all its jobs, over all workers."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, ConfigError, Limit, Rate, Snooze, Worker
from stepwell.telemetry.jobs import JobsClaimed
from stepwell.testing import Clock


class Ledger:
    """Counts the runs that are under way."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.ended = 0

    async def run(self, seconds: float) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(seconds)
        self.running -= 1
        self.ended += 1


@pytest.mark.parametrize("workers", [1, 3])
async def test_no_more_jobs_run_than_the_limit_allows(dsn: str, workers: int) -> None:
    ledger = Ledger()
    apps = [App(dsn) for _ in range(workers)]
    for app in apps:

        @app.task
        async def work() -> None:
            await ledger.run(0.005)

    app = apps[0]
    async with asyncio.TaskGroup() as group, app:
        # Enqueued before the limit was set.
        jobs = await app.aenqueue_many([app.tasks["work"].call() for _ in range(100)])
        await app.aset_queue("default", limit=3)
        jobs += await app.aenqueue_many([app.tasks["work"].call() for _ in range(50)])
        running = [Worker(each, concurrency=20, poll=30) for each in apps]
        tasks = [group.create_task(worker.run()) for worker in running]
        for job in jobs:
            await job.aresult(timeout="30s")
        await app.astop(everything=True)
        await asyncio.gather(*tasks)
    assert (ledger.most, ledger.ended) == (3, 150)


async def test_jobs_that_ran_before_the_limit_was_set_count(app: App) -> None:
    end = asyncio.Event()
    running: set[int] = set()

    @app.task
    async def work(n: int) -> None:
        running.add(n)
        await end.wait()
        running.remove(n)

    async with Worker(app, poll=30):
        first = [await work.aenqueue(n) for n in range(3)]
        await auntil(lambda: len(running) == 3)
        await app.aset_queue("default", limit=2)
        later = [await work.aenqueue(n) for n in range(3, 6)]

        async def counted() -> bool:
            why = await later[0].awhy()
            assert (why.cause, "the queue 'default' has a limit of 2" in why.subject) == ("limit", True)
            return set(why.jobs) == {job.id for job in first}

        await auntil(counted)
        assert len(running) == 3
        end.set()
        for job in first + later:
            await job.aresult(timeout="20s")


async def test_a_limit_that_is_raised_or_removed_takes_effect_at_once(app: App) -> None:
    end = asyncio.Event()
    running: set[int] = set()

    @app.task
    async def work(n: int) -> None:
        running.add(n)
        await end.wait()

    await app.aset_queue("default", limit=0)
    async with Worker(app, poll=30):
        jobs = [await work.aenqueue(n) for n in range(6)]
        why = await jobs[0].awhy()
        assert (why.cause, why.subject) == ("limit", "the queue 'default' has a limit of 0")
        assert why.next_act.endswith("raise the limit: stepwell queues set default --limit 1")
        await app.aset_queue("default", limit=1)
        await auntil(lambda: len(running) == 1)
        await app.aset_queue("default", limit=4)
        await auntil(lambda: len(running) == 4)
        why = await jobs[5].awhy()
        assert (why.cause, len(why.jobs)) == ("limit", 3)
        await app.aset_queue("default", limit=None)
        await auntil(lambda: len(running) == 6)
        end.set()
        for job in jobs:
            await job.aresult(timeout="20s")


async def test_a_job_that_is_handed_back_gives_its_place_to_the_next(app: App) -> None:
    seen: list[str] = []

    @app.task
    async def snoozes() -> None:
        seen.append("snoozed")
        raise Snooze("1h")

    @app.task
    async def plain() -> None:
        seen.append("ran")

    await app.aset_queue("default", limit=1)
    async with Worker(app, poll=30):
        await snoozes.aenqueue()
        job = await plain.aenqueue()
        await job.aresult(timeout="20s")
    assert seen == ["snoozed", "ran"]


async def test_other_queues_and_limits_by_key_work_beside_it(app: App) -> None:
    slow, quick = Ledger(), Ledger()

    @app.task(queue="slow", limit=Limit(2, key="k"))
    async def limited() -> None:
        await slow.run(0.005)

    @app.task(queue="quick")
    async def plain() -> None:
        await quick.run(0.005)

    await app.aset_queue("slow", limit=5)
    async with Worker(app, queues=["slow", "quick"], concurrency=20, poll=30):
        jobs = await app.aenqueue_many([limited.call() for _ in range(40)] + [plain.call() for _ in range(100)])
        for job in jobs:
            await job.aresult(timeout="30s")
    assert slow.most == 2
    assert quick.most > 2
    assert await app.alimits() == []


async def test_a_dead_worker_gives_its_places_back(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    await app.aset_queue("default", limit=1)
    job = await work.aenqueue()
    [(dead,)] = conn.execute(
        "select stepwell.register_worker('here', 7, '0', '{default}', '{\"work\": {}}', 5, 60)::text"
    ).fetchall()
    claim = "select id from stepwell.claim_jobs(%s::uuid, '{default}', '{null}', '{null}', '{null}', '{work}', 5)"
    assert [UUID(row[0]) for row in conn.execute(claim, (dead,)).fetchall()] == [job.id]
    assert conn.execute("select count(*) from stepwell.permit").fetchone() == (1,)
    await work.aenqueue()
    assert conn.execute(claim, (dead,)).fetchall() == []
    conn.execute("update stepwell.worker set lease_until = stepwell.now() - interval '1 hour'")
    async with Worker(app):
        await job.aresult(timeout="30s")
        await auntil(lambda: conn.execute("select count(*) from stepwell.job").fetchone() == (0,))
    assert conn.execute("select count(*) from stepwell.permit").fetchone() == (0,)


async def test_a_worker_does_not_claim_in_vain_while_the_limit_is_full(app: App) -> None:
    end = asyncio.Event()

    @app.task
    async def work() -> None:
        await end.wait()

    await app.aset_queue("default", limit=1)
    worker = Worker(app, poll=0.05)
    heard = Heard(worker)
    async with worker:
        first, second = await work.aenqueue(), await work.aenqueue()
        await auntil(lambda: sum(claim.count for claim in heard.of(JobsClaimed)) == 1)

        async def is_quiet() -> bool:
            """Whether ten polls and more bring no claim. The notification of the second job may bring a late one."""
            before = len(heard.of(JobsClaimed))
            await asyncio.sleep(1)
            return len(heard.of(JobsClaimed)) == before

        await auntil(is_quiet)
        end.set()
        await first.aresult(timeout="20s")
        await second.aresult(timeout="20s")


async def test_after_a_minute_no_running_job_is_without_a_permit(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    counted = "select all_counted from stepwell.queue_setting"
    async with Clock(app) as clock:
        await app.aset_queue("default", limit=1)
        async with Worker(app):
            await (await work.aenqueue()).aresult(timeout="20s")
            assert conn.execute(counted).fetchall() == [(False,)]
            await clock.advance("2m")
            await (await work.aenqueue()).aresult(timeout="20s")
            assert conn.execute(counted).fetchall() == [(True,)]


async def test_a_rate_holds_for_all_jobs_of_the_queue(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    jobs = await app.aenqueue_many([work.call() for _ in range(60)])
    await app.aset_queue("default", rate=Rate(100, burst=5))
    async with Worker(app, concurrency=50, poll=30):
        for job in jobs:
            await job.aresult(timeout="30s")
    # Any so many claims take at least the time of those that are not in the burst.
    times = [row[0] for row in conn.execute("select claimed_at from stepwell.jobs order by claimed_at").fetchall()]
    for first in range(60):
        for last in range(first, 60):
            passed = (times[last] - times[first]).total_seconds()
            assert last - first + 1 <= 5 + passed * 100 + 0.01
    assert (times[-1] - times[0]).total_seconds() < 3


async def test_a_rate_that_is_used_up_says_so_and_is_raised(app: App) -> None:
    @app.task
    async def work() -> None: ...

    await app.aset_queue("default", rate=Rate(1, per="1h"))
    async with Worker(app, poll=30):
        first = await work.aenqueue()
        await first.aresult(timeout="20s")
        second = await work.aenqueue()
        why = await second.awhy()
        assert (why.cause, why.subject) == ("rate", "the rate of the queue 'default' is used up")
        assert why.until is not None
        assert why.next_act == "wait, or raise the rate: stepwell queues set default --rate COUNT/s"
        await app.aset_queue("default", rate=Rate(1000))
        await second.aresult(timeout="20s")
        await app.aset_queue("default", rate=None)
        await (await work.aenqueue()).aresult(timeout="20s")


def test_what_cannot_be_set_is_refused(dsn: str) -> None:
    with App(dsn) as app:
        app.set_queue("mail", limit=5)
        for queue, most in (("mail", -1), ("mail", 2_000_000), ("", 1), ("mail*", 1)):
            with pytest.raises(ConfigError):
                app.set_queue(queue, limit=most)
        with pytest.raises(ConfigError, match="leave key= out"):
            app.set_queue("mail", rate=Rate(1, key="k"))
        app.set_queue("mail", rate=Rate(1))
        for _ in range(2):
            app.set_queue("mail", limit=None)
            app.set_queue("mail", rate=None)
