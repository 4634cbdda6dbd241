"""Backfill: the ticks of a past period get runs, each at most one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from stepwell import App, Backfill, ConfigError, ScheduleNotFound
from stepwell.calendar.schedule import Overlap
from stepwell.schedules.handle import ScheduleHandle
from stepwell.testing import drain

NOW = datetime(2030, 1, 10, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def handle(dsn: str, conn: psycopg.Connection[Any]) -> ScheduleHandle:
    conn.execute("insert into stepwell.clock values (%s)", (NOW,))
    return make(dsn, "allow")


def make(dsn: str, overlap: Overlap, **options: Any) -> ScheduleHandle:
    app = App(dsn, name="shop")

    @app.task
    async def report() -> None: ...

    app.schedule_task(report, "0 9 * * *", tz="Europe/Paris", name="daily", overlap=overlap, **options)
    return app.schedule_named("daily")


def runs(conn: psycopg.Connection[Any]) -> list[tuple[str, datetime]]:
    return conn.execute("select state::text, scheduled_for from stepwell.jobs order by scheduled_for").fetchall()


def test_each_tick_of_a_past_period_gets_one_run(handle: ScheduleHandle, conn: psycopg.Connection[Any]) -> None:
    since = datetime(2030, 1, 1, tzinfo=UTC)
    assert handle.backfill(since, preview=True) == Backfill(10, 10, 0, 0, 0)
    assert runs(conn) == []
    # At 9 in Paris, which is 8 in UTC: the end of the period is not in it.
    first = datetime(2030, 1, 1, 8, tzinfo=UTC)
    assert handle.backfill(first, first + 2 * DAY) == Backfill(2, 2, 0, 0, 0)
    assert runs(conn) == [("ready", first), ("ready", first + DAY)]
    assert handle.backfill(since) == Backfill(10, 8, 2, 0, 0)
    assert handle.backfill(since, NOW + 100 * DAY) == Backfill(10, 0, 10, 0, 0)
    assert len(runs(conn)) == 10
    due = conn.execute("select distinct run_at from stepwell.job").fetchall()
    assert due == [(NOW,)], "a run is due now: it does not overtake other jobs"
    assert all(tick.triggered for tick in handle.ticks())
    info = handle.info()
    assert info is not None
    assert info.next_run_at == datetime(2030, 1, 11, 8, tzinfo=UTC)


def test_a_skipped_tick_gets_a_run_and_a_forgotten_one_does_not(
    handle: ScheduleHandle, conn: psycopg.Connection[Any]
) -> None:
    days = [datetime(2030, 1, day, 8, tzinfo=UTC) for day in (2, 3, 4)]
    conn.execute(
        "insert into stepwell.tick (schedule_id, at, handled_at, skipped)"
        " select id, %s, %s, 'missed' from stepwell.schedule",
        (days[2], NOW),
    )
    conn.execute("update stepwell.schedule set forgotten_until = %s", (days[1],))
    assert handle.backfill(days[0], days[2] + DAY) == Backfill(3, 1, 0, 2, 0)
    assert [tick.skipped for tick in handle.ticks()] == [None]
    assert [at for _, at in runs(conn)] == [days[2]]


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
def test_without_overlap_the_runs_wait_for_each_other(
    dsn: str, conn: psycopg.Connection[Any], overlap: Overlap
) -> None:
    conn.execute("insert into stepwell.clock values (%s)", (NOW,))
    handle = make(dsn, overlap)
    assert handle.backfill(NOW - 3 * DAY).enqueued == 3
    assert [state for state, _ in runs(conn)] == ["ready", "blocked", "blocked"]


def test_runs_whose_unique_key_is_taken_are_counted(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("insert into stepwell.clock values (%s)", (NOW,))
    app = App(dsn, name="shop")

    @app.task(unique="{shop}")
    async def report(shop: int) -> None: ...

    app.schedule_task(report, "1d", name="daily", overlap="allow", args={"shop": 1})
    handle = app.schedule_named("daily")
    assert handle.backfill(NOW - 3 * DAY) == Backfill(3, 1, 0, 0, 2)
    conn.execute("delete from stepwell.clock")
    drain(app)
    conn.execute("insert into stepwell.clock values (%s)", (NOW,))
    assert handle.backfill(NOW - 3 * DAY) == Backfill(3, 1, 1, 0, 1)


async def test_async_code_backfills_in_its_own_transaction(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("insert into stepwell.clock values (%s)", (NOW,))
    handle = await asyncio.to_thread(make, dsn, "allow")
    async with await psycopg.AsyncConnection.connect(dsn) as own:
        assert (await handle.abackfill(NOW - 2 * DAY, connection=own)).enqueued == 2
        await own.rollback()
    assert runs(conn) == []


def test_what_cannot_be_backfilled_is_refused(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("insert into stepwell.clock values (%s)", (NOW,))
    app = App(dsn, name="shop")

    @app.task
    async def beat() -> None: ...

    app.schedule_task(beat, "1m", name="beat", overlap="allow")
    handle = app.schedule_named("beat")
    with pytest.raises(ConfigError, match="more than 1,000 ticks"):
        handle.backfill(NOW - DAY)
    assert handle.backfill(NOW - timedelta(minutes=1000)).enqueued == 1000
    with pytest.raises(ConfigError, match="time zone"):
        handle.backfill(datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ConfigError, match="earlier"):
        handle.backfill(NOW, NOW - DAY)
    assert handle.backfill(NOW + DAY).ticks == 0
    with pytest.raises(ScheduleNotFound):
        app.schedule_named("none").backfill(NOW - DAY)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        conn.execute("select stepwell.backfill_schedule('shop', 'beat', 1, %s)", ([NOW + DAY],))
    changed = conn.execute(
        "select changed, due from stepwell.backfill_schedule('shop', 'beat', 99, %s)", ([NOW - DAY],)
    )
    assert changed.fetchone() == (True, 0)
