"""What five ancestors of this system got wrong, each as the right behaviour: faults 8 to 14 of 14.

8 crashes that never count, so poison jobs loop        also crash/test_killed.py, sql/test_workers.py
9 one lost lease that aborts every running step        also crash/test_stopped.py, worker/test_isolation.py
10 an old worker that parks a newer deploy's jobs      also worker/test_running.py, sql/test_claim.py
11 concurrency max where min was meant: unlimited      also worker/test_running.py, worker/test_queues.py
12 dead workers' jobs that stay running and block      also crash/test_killed.py, sql/test_schedules.py
   their schedule
13 jobs that start before their claim commits          also crash/test_lost_replies.py
14 unsorted multi-row updates that deadlock            every function against every other: sql/test_locking.py
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, Context, JobCancelled, Worker
from stepwell.jobs.task import Task
from stepwell.telemetry.jobs import JobStopAsked, OutcomeRefused
from stepwell.telemetry.worker import DatabaseLost, LeaseLost
from tests.ancestors.looks import known, one, reasons, renews_for
from tests.crash.fleet import Fleet, until
from tests.sql import calls


# 8: crashes that never count, so poison jobs loop for ever.
@pytest.mark.slow
@pytest.mark.crash
def test_a_job_that_kills_its_worker_has_as_many_attempts_as_any_other(
    conn: psycopg.Connection[Any], fleet: Fleet
) -> None:
    workers = [fleet.launch() for _ in range(3)]
    for worker in workers:
        until(worker.has_started, "it has started")
    poison = calls.enqueue(conn, "poison", max_attempts=2)
    until(lambda: calls.state(conn, poison) == "failed", "it has failed for good")
    assert len(fleet.alive) == 1
    failures = "select attempt, reason from stepwell.failures where job_id = %s order by attempt"
    assert conn.execute(failures, (poison,)).fetchall() == [(1, "lease_lost"), (2, "lease_lost")]


# 9: one lost lease that aborts every running step; here, one lost job.
async def test_a_job_that_is_lost_or_cancelled_takes_no_other_with_it(app: App, conn: psycopg.Connection[Any]) -> None:
    late, gate = asyncio.Event(), asyncio.Event()
    running = 0

    @app.task
    async def work(n: int) -> int:
        nonlocal running
        running += 1
        await (late if n == 0 else gate).wait()
        return n

    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        lost, cancelled, *others = await work.aenqueue_many([{"n": n} for n in range(8)])
        await auntil(lambda: running == 8)
        # As if it had been given to another, who has claimed it.
        another = calls.register_worker(conn)
        conn.execute("update stepwell.job set epoch = epoch + 1, worker_id = %s where id = %s", (another, lost.id))
        late.set()
        assert (await heard.wait_for(OutcomeRefused)).job_id == str(lost.id)
        assert await cancelled.acancel()
        with pytest.raises(JobCancelled):
            await cancelled.aresult("20s")
        gate.set()
        assert [await job.aresult("20s") for job in others] == [2, 3, 4, 5, 6, 7]
    assert [asked.job_id for asked in heard.of(JobStopAsked)] == [str(cancelled.id)]
    assert not heard.of(LeaseLost)
    assert {(info.epoch, len(info.failures)) for info in [await known(job) for job in others]} == {(1, 0)}


# 9: one lost lease that aborts every running step; here, another worker's.
@pytest.mark.slow
async def test_another_workers_lost_lease_stops_nothing_here(app: App, conn: psycopg.Connection[Any]) -> None:
    gate = asyncio.Event()

    @app.task
    async def work() -> None:
        await gate.wait()

    keeper, loser = (Worker(app, concurrency=3, renew="300ms") for _ in range(2))
    kept, lost = Heard(keeper), Heard(loser)
    async with keeper, loser:
        jobs = await work.aenqueue_many([dict[str, int]()] * 6)
        await auntil(lambda: one(conn, "select count(*) from stepwell.jobs where state = 'running'") == 6)
        holders = {job: (await known(job)).worker_id for job in jobs}
        keepers = [job for job, holder in holders.items() if str(holder) == keeper.id]
        # As rescue declares a worker dead.
        conn.execute("update stepwell.worker set lease_until = 'epoch' where id = %s", (loser.id,))
        await lost.wait_for(LeaseLost)
        await auntil(lambda: one(conn, "select count(*) from stepwell.jobs where epoch = 2 and state = 'running'") == 3)
        await renews_for(conn, keeper, 0)
        gate.set()
        for job in jobs:
            await job.aresult("20s")
    assert len(keepers) == 3
    for job in jobs:
        info = await known(job)
        assert (info.epoch, reasons(info)) == ((1, []) if job in keepers else (2, ["lease_lost"]))
    assert not kept.of(JobStopAsked)
    assert not kept.of(LeaseLost)


# 10: an old worker that parks a newer deploy's jobs.
@pytest.mark.slow
async def test_an_old_worker_leaves_a_newer_deploys_jobs_to_the_newer_worker(app: App, dsn: str) -> None:
    @app.task
    async def familiar() -> None: ...

    async with App(dsn) as newer:

        @newer.task
        async def novel(n: int) -> int:
            return n

        async with Worker(app, poll="100ms"):
            jobs = await novel.aenqueue_many([{"n": n} for n in range(100)])
            # It gets past them to its own, again and again.
            for _ in range(5):
                await (await familiar.aenqueue()).aresult("20s")
            for job in jobs:
                info = await known(job)
                assert (info.state, info.epoch, info.attempt, info.failures) == ("ready", 0, 0, ())
            async with Worker(newer) as worker:
                for n, job in enumerate(jobs):
                    assert await job.aresult("20s") == n
                    info = await known(job)
                    assert (str(info.worker_id), info.epoch, info.attempt) == (worker.id, 1, 1)


class Load:
    """Short jobs by the hundred, on the loop and in threads, that count how many of their pool run at once."""

    def __init__(self, app: App, pool: Callable[[str], str]) -> None:
        self._app = app
        self._pool = pool
        self._lock = threading.Lock()
        self._now: Counter[str] = Counter()
        self._most: Counter[str] = Counter()

        @app.task
        async def on_loop(ctx: Context) -> None:
            with self._counted(ctx.queue):
                await asyncio.sleep(0.002)

        @app.task
        def in_thread(ctx: Context) -> None:
            with self._counted(ctx.queue):
                time.sleep(0.002)

        self._tasks: list[Task[[], None]] = [on_loop, in_thread]

    async def run(self, worker: Worker) -> dict[str, int]:
        """Run them; returns how many ran at once at most, in each pool."""
        made = [task.using(queue=queue).call() for _ in range(60) for task in self._tasks for queue in ("a", "b", "c")]
        jobs = await self._app.aenqueue_many(made)
        async with worker:
            for job in jobs:
                await job.aresult("60s")
        return dict(self._most)

    @contextmanager
    def _counted(self, queue: str) -> Generator[None]:
        pool = self._pool(queue)
        with self._lock:
            self._now[pool] += 1
            self._most[pool] = max(self._most[pool], self._now[pool])
        yield
        with self._lock:
            self._now[pool] -= 1


# 11: concurrency max where min was meant, so it is unlimited.
async def test_concurrency_is_the_most_that_run_at_once(app: App) -> None:
    load = Load(app, lambda _: "all")
    assert await load.run(Worker(app, queues=["a", "b", "c"], concurrency=2)) == {"all": 2}


# 11: the same for the slots of each pool.
async def test_the_slots_of_a_pool_are_the_most_that_run_at_once_in_it(app: App) -> None:
    load = Load(app, lambda queue: "a" if queue == "a" else "*")
    assert await load.run(Worker(app, queues={"a": 1, "*": 2})) == {"a": 1, "*": 2}


# 12: dead workers' jobs that stay running and block their schedule.
@pytest.mark.slow
@pytest.mark.crash
async def test_a_schedule_whose_run_died_with_its_worker_goes_on(
    app: App, conn: psycopg.Connection[Any], fleet: Fleet
) -> None:
    ran: dict[str, list[tuple[datetime | None, int]]] = {"skip": [], "queue": []}

    @app.task
    async def held(ctx: Context, until: int, ballast: str) -> None:
        ran[ballast].append((ctx.scheduled_for, ctx.epoch))

    victim = await asyncio.to_thread(fleet.start)
    # The victim's task of that name does not end.
    for overlap in ("skip", "queue"):
        await app.aschedule_task(held, "200ms", name=overlap, overlap=overlap, args={"until": 2, "ballast": overlap})
    running = "select count(*) from stepwell.jobs where state = 'running'"
    await auntil(lambda: one(conn, running) == 2)
    victim.kill()
    async with Worker(app):
        await auntil(lambda: all(len(runs) >= 3 for runs in ran.values()))
    for runs in ran.values():
        # First the run that died, then the ticks that waited for it, or came after it.
        assert [epoch for _, epoch in runs] == [2] + [1] * (len(runs) - 1)
        ticks = [tick for tick, _ in runs if tick]
        assert ticks == sorted(set(ticks))


# 13: jobs that start before their claim commits.
async def test_whoever_looks_sees_the_claim_before_the_handler_begins(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    look = "select state::text, worker_id::text, epoch from stepwell.jobs where id = %s"
    seen: list[tuple[Any, ...] | None] = []

    @app.task
    async def on_loop(ctx: Context) -> None:
        seen.append(conn.execute(look, (ctx.id,)).fetchone())

    @app.task
    def in_thread(ctx: Context) -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            seen.append(own.execute(look, (ctx.id,)).fetchone())

    async with Worker(app) as worker:
        await app.aenqueue_many([on_loop.call() for _ in range(200)] + [in_thread.call() for _ in range(40)])
        await auntil(lambda: len(seen) == 240)
        assert set(seen) == {("running", worker.id, 1)}


# 14: unsorted multi-row updates that deadlock.
async def test_outcomes_and_a_cancel_of_the_same_jobs_do_not_deadlock(
    app: App, dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the cancel may not be there before a worker sets locked outcomes aside.
    monkeypatch.setattr("stepwell.worker.locks._PATIENCE", 60.0)
    gates = [asyncio.Event() for _ in range(20)]
    running = 0

    @app.task
    async def work(n: int) -> int:
        nonlocal running
        running += 1
        await gates[n].wait()
        return n

    blocked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    worker = Worker(app, concurrency=20)
    heard = Heard(worker)
    async with worker:
        jobs = await work.aenqueue_many([{"n": n} for n in range(20)])
        await auntil(lambda: running == 20)
        with psycopg.connect(dsn) as other:
            # Both queue up behind this row. Whoever locks from the other end then holds what the other wants.
            other.execute("select from stepwell.job where id = %s for update", (jobs[10].id,))
            for gate in reversed(gates):
                gate.set()
            await auntil(lambda: one(conn, blocked) == 1)
            cancelling = asyncio.create_task(app.acancel_jobs(task=work))
            await auntil(lambda: one(conn, blocked) == 2)
        await cancelling
        assert [await job.aresult("20s") for job in jobs] == list(range(20))
    assert not heard.of(DatabaseLost)
