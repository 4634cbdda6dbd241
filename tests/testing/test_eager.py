"""Handlers that run inline, beside a database in which nothing may appear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from stepwell import App, Call, ConfigError, GroupSummary
from stepwell.jobs.task import Task
from stepwell.testing import assert_enqueued, drain, eager


@pytest.fixture
def double(app_of: App) -> Task[[int], int]:
    @app_of.task
    def double(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return 2 * n

    return double


def test_a_nested_block_leaves_the_outer_one_as_it_was(app_of: App, double: Task[[int], int]) -> None:
    with eager(app_of):
        with eager(app_of):
            assert double.enqueue(1).result() == 2
        assert double.enqueue(2).result() == 4
        with pytest.raises(ConfigError, match=r"drain\(app\)"):
            app_of.emit("paid")
    assert app_of.count_jobs() == 0
    job = double.enqueue(3)
    drain(app_of)
    assert job.result() == 6


def test_a_group_runs_inline_with_its_callback(app_of: App, double: Task[[int], int]) -> None:
    told: list[GroupSummary] = []

    @app_of.task
    def publish(summary: GroupSummary) -> str:
        told.append(summary)
        return "published"

    @app_of.task
    async def sweep() -> str:
        return "swept"

    async def within_a_loop(calls: list[Call[Any]]) -> tuple[str, int]:
        group = await app_of.agroup(calls, then=sweep)
        return await group.then.aresult(), (await group.aresult()).total

    with eager(app_of):
        calls = [double.call(1), double.call(2)]
        group = app_of.group(calls, then=publish)
        assert told == [group.result()] == [GroupSummary(group.id, 2, 2, 0, 0)]
        assert group.then.result() == "published"
        assert app_of.group([]).result().total == 0
        assert asyncio.run(within_a_loop(calls)) == ("swept", 2)
        with pytest.raises(ValueError, match="-1"):
            app_of.group([double.call(-1)], then=publish)
        with pytest.raises(ConfigError, match="called with a GroupSummary"):
            app_of.group(calls, then=double)
    assert len(told) == 1
    assert app_of.count_jobs() == 0


def test_every_other_call_is_refused_and_writes_nothing(
    app_of: App, double: Task[[int], int], conn: psycopg.Connection[Any], dsn: str
) -> None:
    kept = double.enqueue(1)
    with eager(app_of), psycopg.connect(dsn) as own:
        job = double.enqueue(1)
        calls: list[Callable[[], object]] = [
            lambda: app_of.emit("paid"),
            lambda: app_of.emit("paid", connection=own),
            lambda: asyncio.run(app_of.aemit("paid")),
            lambda: app_of.schedule_task(double, "1h", name="hourly", args={"n": 1}),
            lambda: app_of.cancel_jobs(everything=True),
            lambda: app_of.pause("mail"),
            lambda: app_of.fork(kept, step="a"),
            lambda: app_of.get_group(uuid4()),
            lambda: assert_enqueued(double),
            lambda: drain(app_of),
            job.cancel,
            job.info,
            lambda: job.send("late"),
            lambda: asyncio.run(job.acancel()),
            lambda: kept.result(timeout="1s"),
            lambda: next(iter(kept.changes())),
            app_of.group([double.call(1)]).progress,
        ]
        for call in calls:
            with pytest.raises(ConfigError, match=r"eager\(app\) does without: .* or the fixture drain"):
                call()
    left = "select count(*) from stepwell.job union all select count(*) from stepwell.event"
    assert conn.execute(left).fetchall() == [(1,), (0,)]
    assert app_of.schedules() == []
