"""How runs ended is counted by the minute."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import zip_longest

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, Cancel, Context, Fail, JobFailed, Restart, Snooze, Step, Worker
from stepwell.postgres.queries.outcomes import Sums
from stepwell.telemetry.jobs import OutcomeRefused
from stepwell.telemetry.worker import WorkerStopped
from stepwell.values.histogram import bin_of
from stepwell.worker.outcomes.outcome_table import REFUSED, TABLE


async def counted(app: App) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    async with app.database.aconnection() as connection:
        rows = await connection.execute(
            "select task, queue, sum(succeeded), sum(failed), sum(cancelled), sum(handed_back) from stepwell.stats"
            " group by 1, 2"
        )
        return {(row[0], row[1]): row[2:] for row in await rows.fetchall()}


async def test_each_end_is_counted_by_task_and_queue(app: App) -> None:
    @app.task
    async def good() -> None: ...

    @app.task(transaction=False)
    async def bad(how: str) -> None:
        match how:
            case "fail":
                raise Fail("no")
            case "cancel":
                raise Cancel("no")
            case _:
                raise Snooze("1h")

    for _ in range(2):  # what two workers count is added up
        async with Worker(app, queues=["default", "mail"]) as worker:
            jobs = [await good.aenqueue() for _ in range(3)]
            jobs.append(await good.using(queue="mail").aenqueue())
            for job in jobs:
                await job.aresult("20s")
            for how in ("fail", "cancel", "snooze"):
                await bad.aenqueue(how)
            await auntil(lambda: worker.runs_ended == 7)
    found = await counted(app)
    assert found["good", "default"] == (6, 0, 0, 0)
    assert found["good", "mail"] == (2, 0, 0, 0)
    assert found["bad", "default"] == (0, 2, 2, 0)


def test_old_counters_are_forgotten(conn: psycopg.Connection[object]) -> None:
    conn.execute("select stepwell.add_stats('{t}', '{q}', '{1}', '{0}', '{0}', '{0}', '{0.5}')")
    conn.execute(
        "insert into stepwell.stat (minute, task, queue) select now() - interval '8 days', n::text, 'q'"
        " from generate_series(1, 5) as n"
    )
    assert conn.execute(
        "select stepwell.prune_stats(_limit => 3), stepwell.prune_stats(), stepwell.prune_stats()"
    ).fetchone() == (3, 2, 0)
    assert conn.execute("select task, succeeded, seconds from stepwell.stats").fetchall() == [("t", 1, 0.5)]


def test_a_worker_of_the_schema_before_adds_what_it_knows(conn: psycopg.Connection[object]) -> None:
    # As it has prepared it.
    conn.execute(
        "select stepwell.add_stats(%s::text[], %s::text[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::double precision[])",
        (["t"], ["q"], [1], [2], [3], [4], [0.5]),
    )
    assert conn.execute("select handed_back, seconds, suspended, refused from stepwell.stats").fetchall() == [
        (4, 0.5, 0, 0)
    ]


def test_a_worker_of_schema_10_adds_what_it_knows(conn: psycopg.Connection[object]) -> None:
    conn.execute(
        "select stepwell.add_stats(%s::text[], %s::text[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::double precision[], %s::integer[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::integer[])",
        (["t"], ["q"], *[[1]] * 4, [0.5], *[[1]] * 6),
    )
    assert conn.execute("select refused, waits, runs, enqueued from stepwell.stats").fetchall() == [(1, [], [], 0)]


def test_counters_that_are_missing_add_nothing(conn: psycopg.Connection[object]) -> None:
    conn.execute("select stepwell.add_stats('{t,t,null}', '{q,r,q}', '{1}', null, '{null,2}', '{0,0,0,0}', '{0.5}')")
    found = conn.execute("select queue, succeeded, failed, cancelled, seconds from stepwell.stats order by queue")
    assert found.fetchall() == [("q", 1, 0, 0, 0.5), ("r", 0, 0, 2, 0)]


def test_every_outcome_has_a_counter() -> None:
    counters = {row.counter for row in TABLE.values()}
    assert {*counters, REFUSED} == {field.name for field in fields(Sums)} - {
        "task",
        "queue",
        "seconds",
        "waits",
        "runs",
    }


@pytest.mark.counts_runs
async def test_ways_to_end_without_an_end_are_counted_apart(app: App) -> None:
    @app.task
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep("1.01s")

    @app.task
    async def snoozes(ctx: Context) -> None:
        if ctx.epoch == 1:
            raise Snooze("1ms")

    @app.task
    async def restarts(n: int = 0) -> Restart | None:
        return Restart(n + 1) if n < 2 else None

    @app.task
    async def undoes(ctx: Context) -> None:
        await ctx.step(int, undo=lambda: None)
        raise Fail("no")

    def one(n: int) -> int:
        return n

    chain = app.chain("chained", one, Step(one, name="two", queue="other"))

    async with Worker(app, queues=["default", "other"]):
        for job in [await task.aenqueue() for task in (sleeps, snoozes, restarts)] + [await chain.aenqueue(1)]:
            await job.aresult("20s")
        with pytest.raises(JobFailed):
            await (await undoes.aenqueue()).aresult("20s")
    async with app.database.aconnection() as connection:
        rows = await connection.execute(
            "select task, queue, sum(succeeded), sum(failed), sum(handed_back), sum(suspended), sum(snoozed),"
            " sum(advanced), sum(restarted), sum(undone), sum(refused) from stepwell.stats group by 1, 2"
        )
        found = {f"{row[0]} {row[1]}": row[2:] for row in await rows.fetchall()}
    assert found == {
        "sleeps default": (1, 0, 0, 1, 0, 0, 0, 0, 0),
        "snoozes default": (1, 0, 0, 0, 1, 0, 0, 0, 0),
        "restarts default": (1, 0, 0, 0, 0, 0, 2, 0, 0),
        "undoes default": (0, 1, 0, 0, 0, 0, 0, 1, 0),
        "chained default": (0, 0, 0, 0, 0, 1, 0, 0, 0),
        "chained other": (1, 0, 0, 0, 0, 0, 0, 0, 0),
    }


@pytest.mark.counts_runs
async def test_every_run_is_in_both_histograms_whatever_its_end(app: App) -> None:
    @app.task
    async def ends(how: str) -> None:
        match how:
            case "fail":
                raise Fail("no")
            case "cancel":
                raise Cancel("no")
            case "snooze":
                raise Snooze("1h")
            case _:
                await asyncio.sleep(0.2)

    # Due for 100 seconds, by the clock of the database.
    due = datetime.now(UTC) - timedelta(seconds=100)
    async with Worker(app) as worker:
        for how in ("fail", "cancel", "snooze", "sleep"):
            await ends.using(run_at=due).aenqueue(how)
        await auntil(lambda: worker.runs_ended == 4)
    async with app.database.aconnection() as connection:
        rows = await connection.execute(
            "select succeeded, failed, cancelled, snoozed, waits, runs from stepwell.stats where task = 'ends'"
        )
        found = await rows.fetchall()
    assert [sum(row[n] for row in found) for n in range(4)] == [1, 1, 1, 1]
    waits, runs = ([sum(bins) for bins in zip_longest(*(row[n] for row in found), fillvalue=0)] for n in (4, 5))
    assert (sum(waits), sum(runs)) == (4, 4)
    assert waits[bin_of(100.0) :] == [4]
    # The others are as long as a busy machine makes them.
    assert sum(runs[bin_of(0.2) :]) >= 1


async def test_what_the_fence_refuses_is_counted_apart(app: App, conn: psycopg.Connection[object]) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def late() -> None:
        begun.set()
        await go_on.wait()

    async with Worker(app) as worker:
        heard = Heard(worker)
        job = await late.aenqueue()
        await begun.wait()
        # As another worker would that had rescued it.
        conn.execute("update stepwell.job set epoch = epoch + 1")
        go_on.set()
        assert (await heard.wait_for(OutcomeRefused)).job_id == str(job.id)
        conn.execute("delete from stepwell.job")
    assert conn.execute("select succeeded, refused, seconds > 0 from stepwell.stats").fetchall() == [(0, 1, True)]
    assert heard.of(WorkerStopped)[0].succeeded == 0


async def test_the_leader_counts_enqueued_jobs_and_adds_counters_up(app: App, conn: psycopg.Connection[object]) -> None:
    @app.task
    async def nothing() -> None: ...

    def is_done() -> bool:
        rows = conn.execute("select from stepwell.stat_progress where num_nulls(counted_to, quarters_to) = 0")
        return rows.fetchone() is not None

    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args) select"
        " stepwell.first_uuid_at(now(), -120), now(), now() - interval '2 minutes', 'ready', 'mail', 'idle', '{}'"
    )
    assert not is_done()
    async with Worker(app):
        await auntil(is_done)
    assert conn.execute("select task, queue, enqueued from stepwell.stats").fetchall() == [("mail", "idle", 1)]
    assert conn.execute("select minutes, enqueued from stepwell.stat_sum where task = ''").fetchall()[0] == (1, 1)


async def test_what_a_shutdown_stops_is_handed_back(app: App, conn: psycopg.Connection[object]) -> None:
    begun = asyncio.Event()

    @app.task
    async def long() -> None:
        begun.set()
        await asyncio.sleep(3600)

    async with Worker(app, concurrency=1, grace=0):
        for _ in range(3):
            await long.aenqueue()
        await begun.wait()
    # Not those that were claimed ahead: they did not run.
    assert conn.execute("select succeeded, handed_back, snoozed from stepwell.stats").fetchall() == [(0, 1, 0)]
