"""Schedules as the app offers them: in code and at run time, sync, async, and in the caller's transaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from stepwell import App, BadArgs, ConfigError, Context, ScheduleNotFound, StepwellError, Worker, preview
from stepwell.testing import Clock


async def test_what_stands_in_code_is_there_once_a_worker_has_started(app: App) -> None:
    @app.schedule("0 9 * * mon-fri", tz="Europe/Paris", overlap="skip", catchup="once")
    @app.schedule("15m", name="often", args={"n": 3}, queue="mail", priority=5, overlap="queue", catchup=7, jitter="5s")
    @app.task
    async def report(ctx: Context, n: int = 1) -> None: ...

    assert await app.aschedules() == []
    async with Worker(app):
        often, morning = await app.aschedules()
    assert (morning.name, morning.task, morning.cron, morning.tz) == (
        "report",
        "report",
        "0 9 * * mon-fri",
        "Europe/Paris",
    )
    assert morning.next_run_at is not None
    assert morning.next_run_at.astimezone(ZoneInfo("Europe/Paris")).hour == 9
    assert morning.preview(3)[0] == morning.next_run_at
    assert (morning.owner, morning.declared, morning.queue) == (app.name, True, "default")
    assert (often.name, often.every, often.args, often.queue, often.priority) == ("often", 900, {"n": 3}, "mail", 5)
    assert (often.overlap, often.catchup, often.jitter) == ("queue", 7, 5)


async def test_a_worker_that_starts_again_shifts_nothing(app: App) -> None:
    @app.schedule("1h")
    @app.task
    async def hourly() -> None: ...

    # By a clock that stands still: at the end of an hour the next run would be another one.
    async with Clock(app):
        async with Worker(app):
            [before] = await app.aschedules()
        async with Worker(app):
            [after] = await app.aschedules()
    assert (before.id, before.next_run_at) == (after.id, after.next_run_at)
    assert before.next_run_at is not None
    assert before.next_run_at.timestamp() % 3600 == 0


def test_sync_code_makes_changes_and_deletes_a_schedule(dsn: str) -> None:
    with App(dsn, name="shop") as app:

        @app.task
        def clean(days: int) -> None: ...

        made = app.schedule_task(clean, "*/5 * * * *", args={"days": 7}, tz="Asia/Tokyo")
        assert (made.owner, made.name, made.cron, made.declared) == ("shop", "clean", "*/5 * * * *", False)
        changed = app.schedule_task(clean, "90s", args={"days": 8})
        assert (changed.id, changed.every, changed.args) == (made.id, 90, {"days": 8})
        handle = app.schedule_named("clean")
        assert handle.info() == changed
        handle.pause()
        handle.pause()
        [paused] = app.schedules()
        assert paused.paused_at is not None
        assert paused.next_run_at is None
        handle.resume()
        handle.resume()
        [resumed] = app.schedules()
        assert resumed.next_run_at == made.next_run_at or resumed.next_run_at is not None
        job = handle.trigger()
        info = job.info()
        assert info is not None
        assert (info.task, info.args, info.schedule_id) == ("clean", {"days": 8}, made.id)
        [tick] = handle.ticks()
        assert (tick.job_id, tick.triggered, tick.at) == (job.id, True, info.scheduled_for)
        assert handle.delete()
        assert not handle.delete()
        assert handle.info() is None
        for act in (handle.pause, handle.resume, handle.trigger):
            with pytest.raises(ScheduleNotFound, match="'shop' has no schedule 'clean'"):
                act()


async def test_async_code_does_the_same(app: App) -> None:
    @app.task
    async def clean() -> None: ...

    made = await app.aschedule_task(clean, timedelta(days=30), name="seldom")
    handle = app.schedule_named("seldom")
    await handle.apause()
    await handle.aresume()
    job = await handle.atrigger()
    async with Worker(app):
        await job.aresult("20s")
    assert [tick.job_id for tick in await handle.aticks()] == [job.id]
    info = await handle.ainfo()
    assert info is not None
    assert (info.id, info.last_job_id) == (made.id, job.id)
    assert await handle.adelete()
    with pytest.raises(StepwellError, match="await apause"):
        handle.pause()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_schedule_is_made_in_the_callers_transaction(app: App, dsn: str, commits: bool) -> None:
    @app.task
    async def clean() -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        made = await app.aschedule_task(clean, "1m", connection=connection)
        await app.schedule_named("clean").atrigger(connection=connection)
        assert await app.aschedules() == []
        await (connection.commit() if commits else connection.rollback())
    assert [schedule.id for schedule in await app.aschedules()] == [made.id] * commits


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"when": "61 * * * *"}, "minute"),
    ({"when": "* * * *"}, "fields"),
    ({"when": ""}, "schedule is ''"),
    ({"when": "0 9 * * *", "tz": "Mars/Olympus"}, "tz is 'Mars/Olympus'"),
    ({"when": 0}, "interval"),
    ({"when": "0s"}, "interval"),
    ({"when": timedelta(0)}, "interval"),
    ({"when": "1h", "tz": "Europe/Paris"}, "tz"),
    ({"when": "1h", "overlap": "maybe"}, "overlap is 'maybe': it must be one of skip, allow, queue, replace"),
    ({"when": "1h", "catchup": "all"}, "catchup is 'all'"),
    ({"when": "1h", "catchup": 0}, "catchup is 0"),
    ({"when": "1h", "catchup": True}, "catchup is True"),
    ({"when": "1h", "catchup": 1001}, "catchup is 1001"),
    ({"when": "1h", "jitter": -1}, "jitter"),
    ({"when": "1h", "queue": ""}, "queue is ''"),
    ({"when": "1h", "priority": 99999}, "priority is 99999"),
    ({"when": "1h", "name": "a\nb"}, "name is"),
    ({"when": "1h", "name": "x" * 201}, "name is"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_is_wrong_is_refused_where_it_stands_and_the_field_named(given: dict[str, Any], said: str) -> None:
    app = App("postgresql://nowhere")

    @app.task
    def work() -> None: ...

    when = given.pop("when")
    with pytest.raises(ConfigError, match=said):
        app.schedule(when, **given)(work)
    with pytest.raises(ConfigError, match=said):
        app.schedule_task(work, when, **given)
    assert app.scheduler.names == []
    given["when"] = when


def test_args_that_do_not_fit_the_task_are_refused_where_they_stand() -> None:
    app = App("postgresql://nowhere")

    @app.task
    def work(n: int) -> None: ...

    with pytest.raises(BadArgs, match="it needs 'n'"):
        app.schedule("1h")(work)
    with pytest.raises(BadArgs, match="argument 'n'"):
        app.schedule("1h", args={"n": "seven"})(work)
    with pytest.raises(BadArgs, match="args is"):
        app.schedule("1h", args=[1])(work)  # pyright: ignore[reportArgumentType]


def test_two_schedules_of_one_name_and_things_that_are_no_tasks_are_refused() -> None:
    app, other = App("postgresql://nowhere"), App("postgresql://nowhere")

    @app.schedule("1h")
    @app.task
    def work() -> None: ...

    with pytest.raises(ConfigError, match=r"two schedules are named 'work'.*name="):
        app.schedule("2h")(work)
    with pytest.raises(ConfigError, match=r"write it above @app\.task"):
        app.schedule("2h")(work.fn)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="a task of another app"):
        other.schedule("2h")(work)


async def test_a_schedule_that_somebody_deletes_as_it_is_made_is_said_to_be_gone(app: App, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute(
            "create function public.somebody() returns trigger language plpgsql as"
            " 'begin delete from stepwell.schedule; return null; end'"
        )
        await conn.execute(
            "create trigger somebody after insert on stepwell.schedule execute function public.somebody()"
        )

    @app.task
    async def clean() -> None: ...

    with pytest.raises(ScheduleNotFound, match="has been deleted since"):
        await app.aschedule_task(clean, "@daily")


async def test_a_schedule_in_code_is_not_changed_at_run_time(app: App) -> None:
    @app.schedule("1h")
    @app.task
    async def work() -> None: ...

    async with Worker(app):
        pass
    with pytest.raises(ConfigError, match=r"schedule work of .* is declared in code"):
        await app.aschedule_task(work, "2h")


async def test_stale_schedules_go_by_what_the_app_says(dsn: str) -> None:
    async def start(stale: Any, *names: str, owner: str = "shop") -> list[str]:
        async with App(dsn, name=owner, stale_schedules=stale, schedule_grace=0) as app:

            @app.task
            async def work() -> None: ...

            for name in names:
                app.schedule("1h", name=name)(work)
            if "made" not in [schedule.name for schedule in await app.aschedules()] and owner == "shop":
                await app.aschedule_task(work, "1h", name="made")
            async with Worker(app):
                return [schedule.name for schedule in await app.aschedules()]

    assert await start("keep", "other", owner="bakery") == ["other"]
    assert await start("remove_stale", "a", "b") == ["a", "b", "made"]
    assert await start("keep", "b") == ["a", "b", "made"]
    assert await start("remove_stale", "b") == ["b", "made"]
    assert await start("remove_all", "c") == ["c"]
    assert await start("remove_all", "other", owner="bakery") == ["other"]
    with pytest.raises(ConfigError, match="stale_schedules is 'sometimes'"):
        await start("sometimes")


def test_an_app_is_named_by_its_module_unless_it_says_otherwise() -> None:
    assert App("postgresql://nowhere").name == __name__
    assert App("postgresql://nowhere", name="shop").name == "shop"


def test_the_next_times_can_be_seen_without_a_database() -> None:
    times = preview("30 8 * * *", tz="America/New_York", n=3)
    assert [(at.hour, at.minute, str(at.tzinfo)) for at in times] == [(8, 30, "America/New_York")] * 3
    assert times == sorted(times)
    assert times[0] > datetime.now(UTC)
    assert [at.second % 20 for at in preview("20s", n=4)] == [0] * 4
    with pytest.raises(ConfigError, match="n is 0"):
        preview("20s", n=0)
