"""Acts of people in programs: `app.acting_as`."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from stepwell import App, ConfigError, Rate


def recorded(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute("select who, act, target, count from stepwell.audit order by id").fetchall()


async def test_only_what_is_done_in_the_block_is_recorded(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    await app.apause("before")
    with app.acting_as("ada"):
        await app.apause("mail")
        await app.aset_limit("api", 3)
        await app.aset_rate("api", Rate(10, per="2s"))
        await app.aset_queue("mail", keep="1d", paused=False)
        job = await work.aenqueue()  # an enqueue is no act
        await job.acancel()
        await app.aemit("shipped", key="7")
        assert await app.ajobs()  # and a read is none
    await app.apause("after")
    assert recorded(conn) == [
        ("ada", "pause", "queue mail", 1),
        ("ada", "set limit", "key api: 3", 1),
        ("ada", "set rate", "key api: 10 per 2 s", 1),
        ("ada", "set queue", "queue mail: keep=86400.0, paused=False", 1),
        ("ada", "cancel", f"job {job.id}", 1),
        ("ada", "emit", "event shipped with key 7", 1),
    ]


async def test_concurrent_tasks_do_not_take_each_others_name(app: App, conn: psycopg.Connection[Any]) -> None:
    async def pause(who: str) -> None:
        with app.acting_as(who):
            for n in range(5):
                await app.apause(f"{who}{n}")

    await asyncio.gather(pause("ada"), pause("grace"), app.apause("nobody"))
    found = recorded(conn)
    assert len(found) == 10
    assert all(target.startswith(f"queue {who}") for who, _, target, _ in found)


async def test_the_batches_of_a_bulk_change_are_one_act(
    app: App, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def work(n: int) -> None: ...

    monkeypatch.setattr("stepwell.jobs.bulk.CHUNK", 2)
    await work.using(delay="1h").aenqueue_many([{"n": n} for n in range(5)])
    with app.acting_as("ada"):
        assert await app.acancel_jobs(task=work) == 5
    [(who, act, target, count)] = recorded(conn)
    assert (who, act, count) == ("ada", "cancel", 5)
    assert target == "jobs with state=scheduled,ready,running,waiting,blocked task=work"


async def test_an_act_in_your_own_transaction_is_recorded_if_that_commits(app: App, dsn: str) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.using(delay="1h").aenqueue()
    async with await psycopg.AsyncConnection.connect(dsn) as mine:
        with app.acting_as("ada"):
            await job.acancel(connection=mine)
        await mine.rollback()
        with psycopg.connect(dsn) as conn:
            assert recorded(conn) == []
        with app.acting_as("ada"):
            await job.acancel(connection=mine)
        await mine.commit()
        with psycopg.connect(dsn) as conn:
            assert recorded(conn) == [("ada", "cancel", f"job {job.id}", 1)]


async def test_a_name_is_needed(app: App) -> None:
    for wrong in ("", "a\0", "x" * 201):
        with pytest.raises(ConfigError, match="who is"):
            app.acting_as(wrong)
