"""Schedules without a name of their own, whose task a deploy has renamed: `@app.task(was=...)`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
from waiting import auntil

from stepwell import App, Worker
from stepwell.testing import Clock


def an_app(dsn: str, name: str, *was: str, when: str = "0 * * * *") -> App:
    app = App(dsn, name="shop")

    @app.schedule(when)
    @app.task(name=name, was=was)
    async def report() -> None: ...

    return app


async def put(app: App) -> None:
    """As a worker does that starts."""
    await app.scheduler.put_declared(app.database)


async def test_a_tick_fires_once_while_workers_run_the_code_from_before_and_after_a_rename(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with an_app(dsn, "report") as old, an_app(dsn, "daily_report", "report") as new, Clock(old) as clock:
        await clock.set(datetime(2030, 5, 1, 7, 50, tzinfo=UTC))
        async with Worker(old):
            [before] = await old.aschedules()
            async with Worker(new):
                [after] = await new.aschedules()
                assert (after.id, after.name, after.task) == (before.id, "report", "daily_report")
                assert after.next_run_at == before.next_run_at
                async with Worker(old):  # that was restarted
                    assert [schedule.id for schedule in await old.aschedules()] == [before.id]
                    await clock.set(datetime(2030, 5, 1, 8, 0, 1, tzinfo=UTC))

                    async def ran() -> bool:
                        return [job.state for job in await new.ajobs()] == ["succeeded"]

                    await auntil(ran)
    assert conn.execute("select count(*) from stepwell.ticks").fetchone() == (1,)


async def test_a_schedule_stays_paused_when_its_task_is_renamed(dsn: str) -> None:
    async with an_app(dsn, "report") as old, an_app(dsn, "daily_report", "report") as new:
        await put(old)
        await old.schedule_named("report").apause()
        await put(new)
        [schedule] = await new.aschedules()
        assert schedule.task == "daily_report"
        assert schedule.paused_at is not None


async def test_a_schedule_is_taken_over_from_code_that_did_not_know_the_first_name(dsn: str) -> None:
    names = ("report", "daily_report", "weekly_report")
    async with an_app(dsn, "weekly_report") as before, an_app(dsn, names[2], *names[:2]) as after:
        await put(before)
        await before.schedule_named("weekly_report").apause()
        [old] = await before.aschedules()
        await put(after)
        await put(after)
        [new] = await after.aschedules()
        assert (new.id, new.name, new.paused_at) == (old.id, "report", old.paused_at)


async def test_a_schedule_that_somebody_named_is_not_taken_over(dsn: str) -> None:
    async with App(dsn, name="shop") as before, an_app(dsn, "daily_report", "report") as after:

        @before.schedule("1h", name="daily_report")
        @before.task
        async def other() -> None: ...

        await put(before)
        await put(after)
        assert {(each.name, each.task) for each in await after.aschedules()} == {
            ("daily_report", "other"),
            ("report", "daily_report"),
        }


async def test_a_schedule_that_the_code_names_keeps_its_name(dsn: str) -> None:
    async with an_app(dsn, "daily_report") as before, an_app(dsn, "daily_report", "report") as after:
        after.schedule("1h", name="daily_report")(after.tasks["daily_report"])
        await put(before)
        await put(after)
        assert [each.name for each in await after.aschedules()] == ["daily_report", "report"]


async def test_a_schedule_made_at_run_time_is_changed_after_its_task_was_renamed(dsn: str) -> None:
    async with App(dsn, name="shop") as old, App(dsn, name="shop") as late, App(dsn, name="shop") as new:
        versions = (old, "report", ()), (late, "daily_report", ()), (new, "daily_report", "report")
        for app, name, was in versions:

            @app.task(name=name, was=was)
            async def report() -> None: ...

        made = await old.aschedule_task(old.tasks["report"], "1h")
        changed = await new.aschedule_task(new.tasks["daily_report"], "2h")
        assert (changed.id, changed.name, changed.every) == (made.id, "report", 7200)
        await new.schedule_named("report").adelete()
        made = await late.aschedule_task(late.tasks["daily_report"], "1h")
        changed = await new.aschedule_task(new.tasks["daily_report"], "2h")
        assert (changed.id, changed.name) == (made.id, "report")


async def test_a_run_time_schedule_takes_none_over_that_is_in_code(dsn: str) -> None:
    async with an_app(dsn, "daily_report") as in_code, App(dsn, name="shop") as app:

        @app.task(name="daily_report", was="report")
        async def report() -> None: ...

        await put(in_code)
        await app.aschedule_task(report, "2h")
        assert [(each.name, each.declared) for each in await app.aschedules()] == [
            ("daily_report", True),
            ("report", False),
        ]
