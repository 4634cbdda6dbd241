"""What five ancestors of this system got wrong, each as the right behaviour: faults 1 to 7 of 14.

1 a lease as long as the timeout, so it ends first     also worker/test_failing.py, crash/test_stopped.py
2 no fence, or one per worker run                      also sql/test_outcomes.py, sql/test_model.py, crash
3 a heartbeat that dies with a panic, or outlives it   also worker/test_lifecycle.py, crash/test_partition.py
4 delayed jobs that wait for the next poll             also worker/test_running.py, sql/test_promote.py
5 a shutdown that reaches only its own process,        also worker/test_control.py, cli/test_supervisor.py,
  or drops the running job                             crash/test_shutdown.py
6 a concurrency key that is really uniqueness          the key itself is not built yet; its nearest relative is a
                                                       schedule whose runs wait for each other
7 cron that fires early, or twice with two instances   also schedules/test_firing.py, sql/test_schedules.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli.commands import Jobs, Start
from cli.process import Process
from waiting import Heard, auntil

from stepwell import App, Context, DatabaseError, Fail, JobFailed, Retry, Snooze, Worker
from stepwell.telemetry.jobs import OutcomeRefused
from stepwell.telemetry.worker import LeaseLost
from stepwell.worker.upkeep.upkeep import Upkeep
from tests.ancestors.looks import known, one, reasons, renews_for
from tests.crash.fleet import Fleet

ONCE = Retry(max_attempts=1)


# 1: lease equal to timeout, so it ends first.
@pytest.mark.slow
async def test_a_job_outlives_the_lease_and_only_its_timeout_ends_it(app: App) -> None:
    @app.task(timeout="10s")
    async def long(ctx: Context) -> int:
        await asyncio.sleep(3)
        return ctx.epoch

    @app.task(timeout="3s", retry=ONCE)
    async def too_long() -> None:
        await asyncio.Event().wait()

    async with Worker(app, lease="2s", renew="300ms"), Worker(app, lease="2s", renew="300ms"):
        jobs = await long.aenqueue(), await too_long.aenqueue()
        assert await jobs[0].aresult("20s") == 1
        with pytest.raises(JobFailed, match="it ran longer than its timeout of 3s"):
            await jobs[1].aresult("20s")
    assert [(info.epoch, reasons(info)) for info in [await known(job) for job in jobs]] == [(1, []), (1, ["timeout"])]


# 2: no fence, or one per worker run.
async def test_a_late_run_cannot_end_the_job_for_a_newer_run_in_the_same_worker(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    gates = {1: asyncio.Event(), 2: asyncio.Event()}
    running = {1: 0, 2: 0}

    @app.task
    async def work(ctx: Context, late: str) -> int:
        running[ctx.epoch] += 1
        await gates[ctx.epoch].wait()
        if ctx.epoch == 1 and late == "raises":
            raise Fail("too late")
        if ctx.epoch == 1 and late == "snoozes":
            raise Snooze("1h")
        return ctx.epoch

    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        jobs = await work.aenqueue_many([{"late": late} for late in ("returns", "raises", "snoozes")])
        await auntil(lambda: running[1] == 3)
        # As a rescue would, by mistake: the worker lives, and gets them again.
        conn.execute("select stepwell.fail_held(%s, 'taken for dead', '{}')", (worker.id,))
        await auntil(lambda: running[2] == 3)
        gates[1].set()
        await auntil(lambda: len(heard.of(OutcomeRefused)) == 3)
        gates[2].set()
        assert [await job.aresult("20s") for job in jobs] == [2, 2, 2]
    assert [reasons(await known(job)) for job in jobs] == [["lease_lost"]] * 3


# 3: a heartbeat that dies with a panic.
@pytest.mark.slow
async def test_a_handler_that_panics_does_not_stop_the_renewals(app: App, conn: psycopg.Connection[Any]) -> None:
    class Panic(BaseException):
        pass

    panics: dict[str, BaseException] = {
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "generator": GeneratorExit(),
        "panic": Panic(),
    }
    gate = asyncio.Event()

    @app.task
    async def long(ctx: Context) -> int:
        await gate.wait()
        return ctx.epoch

    @app.task(retry=ONCE)
    async def on_loop(kind: str) -> None:
        raise panics[kind]

    @app.task(retry=ONCE)
    def in_thread(kind: str) -> None:
        raise panics[kind]

    worker = Worker(app, lease="2s", renew="300ms")
    heard = Heard(worker)
    async with worker:
        job = await long.aenqueue()
        for task in (on_loop, in_thread):
            for kind in panics:
                with pytest.raises(JobFailed):
                    await (await task.aenqueue(kind)).aresult("20s")
        await renews_for(conn, worker, 2.5)
        gate.set()
        assert await job.aresult("20s") == 1
    assert not heard.of(LeaseLost)


# 3: a heartbeat that outlives a panic, here the worker's own.
async def test_a_worker_that_breaks_down_renews_no_more_though_a_part_of_it_did_not_hear(
    app: App, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def work() -> None: ...

    async def swallow_a_cancel(_: Upkeep) -> None:
        # As `asyncio.wait_for` does before Python 3.12, by which psycopg waits, when what it waits for comes just then.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    monkeypatch.setattr(Upkeep, "run", swallow_a_cancel)
    worker = Worker(app, poll="50ms")
    runs = asyncio.create_task(worker.run())
    await worker.started()
    assert one(conn, "select count(*) from stepwell.workers") == 1
    conn.execute("drop function stepwell.first_ready")
    with pytest.raises(DatabaseError, match="first_ready"):
        await asyncio.wait_for(asyncio.shield(runs), 20)
    assert one(conn, "select count(*) from stepwell.workers") == 0
    assert "stepwell-lease" not in [thread.name for thread in threading.enumerate()]


# 3: a heartbeat that outlives a kill.
@pytest.mark.crash
async def test_a_worker_that_is_killed_leaves_the_registry_long_before_its_lease_ends(
    app: App, conn: psycopg.Connection[Any], fleet: Fleet
) -> None:
    @app.task
    async def work() -> None: ...

    victim = await asyncio.to_thread(fleet.start, lease="1h")
    async with Worker(app) as survivor:
        victim.kill()
        await auntil(lambda: conn.execute("select id::text from stepwell.workers").fetchall() == [(survivor.id,)])


# 4: delayed jobs that wait for the next poll.
@pytest.mark.slow
async def test_a_delayed_job_and_a_retry_start_at_their_time_without_a_poll(app: App) -> None:
    @app.task(retry=Retry(max_attempts=3, initial="200ms", cap="200ms"))
    async def third_time(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    async with Worker(app, poll="10m"):
        # One after the other: each begins when the worker has just looked and found nothing.
        for _ in range(3):
            job = await third_time.using(delay="200ms").aenqueue()
            assert await job.aresult("60s") == 3
            info = await known(job)
            starts = [failure.claimed_at for failure in info.failures]
            assert starts[0]
            assert info.finished_at
            assert starts[0] - info.enqueued_at >= timedelta(seconds=0.2)
            # Three pauses, and no look in between: without being told it looks every five seconds.
            assert info.finished_at - info.enqueued_at < timedelta(seconds=4)


# 5: a shutdown that reaches only its own process, or drops the running job.
@pytest.mark.crash
def test_a_stop_reaches_every_process_and_each_ends_what_it_runs(
    start: Start, conn: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    jobs, gate = Jobs(conn), tmp_path / "gate"
    held = [jobs.ready("hold", json.dumps({"until": str(gate)})) for _ in range(2)]
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    workers = [Process(start, place, "-c", "1") for place in places]
    for worker in workers:
        worker.until(lambda: [jobs.state(job) for job in held] == ["running", "running"])
    with App(dsn) as app:
        assert app.stop(everything=True) == 2
    for worker in workers:
        worker.says("stopping: waiting up to 30s for 1 running job")
    later = jobs.ready()
    gate.touch()
    assert [worker.end() for worker in workers] == [0, 0]
    rows = conn.execute("select id::text, state::text, attempt, epoch from stepwell.jobs order by id").fetchall()
    assert rows == [*((job, "succeeded", 1, 1) for job in held), (later, "ready", 0, 0)]


# 6: a concurrency key that is really uniqueness.
async def test_runs_that_wait_for_each_other_all_run_one_at_a_time_and_in_order(app: App) -> None:
    gate = asyncio.Event()
    running = most = 0
    ran: list[datetime | None] = []

    @app.schedule("100ms", overlap="queue", catchup=1000)
    @app.task
    async def beat(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        ran.append(ctx.scheduled_for)
        running -= 1

    schedule = app.schedule_named("beat")
    async with Worker(app):

        async def many() -> bool:
            return len(await schedule.aticks(1000)) >= 10

        await auntil(many)
        await auntil(lambda: running == 1)
        await schedule.apause()
        ticks = [tick.at for tick in await schedule.aticks(1000)][::-1]
        gate.set()
        await auntil(lambda: len(ran) == len(ticks))
    assert ran == ticks == [ticks[0] + n * timedelta(milliseconds=100) for n in range(len(ticks))]
    assert most == 1


# 7: cron that fires early, or twice with two instances.
@pytest.mark.slow
async def test_each_tick_fires_once_and_never_early_however_many_instances_fire(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    # The worst case: each believes that it leads, and none waits for another to be first.
    conn.execute(
        "create or replace function stepwell.lead(_worker_id uuid, _lease double precision default 5) returns boolean"
        " language sql as 'select true'"
    )

    @contextlib.asynccontextmanager
    async def instance() -> AsyncGenerator[None]:
        async with App(dsn, name="shop") as app:

            @app.schedule("100ms", name="often", overlap="allow", catchup=1000)
            @app.schedule("* * * * * *", name="cron", overlap="allow", catchup=1000)
            @app.task
            async def beat() -> None: ...

            async with Worker(app):
                yield

    counted = "select count(*) from stepwell.jobs j join stepwell.schedules s on s.id = j.schedule_id where s.name = %s"
    async with instance(), instance(), instance():
        await auntil(lambda: one(conn, counted, "cron") >= 3 and one(conn, counted, "often") >= 20)
    assert one(conn, "select count(*) from stepwell.jobs where enqueued_at < scheduled_for") == 0
    twice = "select schedule_id, scheduled_for from stepwell.jobs group by 1, 2 having count(*) > 1"
    assert conn.execute(twice).fetchall() == []
