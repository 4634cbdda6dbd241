"""What a worker that regains its lease does to schedules: newer code may have changed them meanwhile."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Worker
from stepwell.calendar.schedule import Stale


@pytest.mark.parametrize("stale", ["remove_stale", "remove_all"])
async def test_a_worker_that_regains_its_lease_leaves_newer_schedules_as_they_are(
    dsn: str, conn: psycopg.Connection[Any], stale: Stale
) -> None:
    old, new = [App(dsn, name="shop", stale_schedules=which) for which in (stale, "remove_stale")]
    for app, cron, others in (old, "0 3 * * *", ["deleted"]), (new, "0 5 * * *", ["added"]):

        @app.task
        async def nightly() -> None: ...

        app.schedule(cron, name="nightly")(nightly)
        for name in others:
            app.schedule("1h", name=name)(nightly)

    async def crons() -> dict[str, str | None]:
        return {schedule.name: schedule.cron for schedule in await new.aschedules()}

    async with old, new, Worker(old, renew="100ms"):
        await new.scheduler.put_declared(new.database)
        await new.schedule_named("deleted").adelete()
        assert await crons() == {"nightly": "0 5 * * *", "added": None}
        conn.execute("delete from stepwell.worker")

        async def is_back() -> bool:
            return "deleted" in await crons()

        await auntil(is_back)
        assert await crons() == {"nightly": "0 5 * * *", "added": None, "deleted": None}


async def test_a_worker_that_regains_its_lease_before_it_has_put_in_its_schedules_changes_none(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.schedules.declare._PATIENCE", 0.05)
    app = App(dsn, name="shop")

    @app.task
    async def nightly() -> None: ...

    app.schedule("0 3 * * *", name="nightly")(nightly)
    async with app, await psycopg.AsyncConnection[Any].connect(dsn, autocommit=True) as other:
        await app.scheduler.put_declared(app.database)
        app.schedule("1h", name="added")(nightly)
        conn.autocommit = False
        # Newer code, which commits after the old worker has started.
        conn.execute("update stepwell.schedule set cron = '0 5 * * *'")
        async with Worker(app, renew="100ms") as worker:
            before = worker.id
            await other.execute("delete from stepwell.worker")
            await auntil(lambda: worker.id not in (None, before))
            conn.commit()

            async def crons() -> dict[str, str | None]:
                return {schedule.name: schedule.cron for schedule in await app.aschedules()}

            async def is_put() -> bool:
                return "added" in await crons()

            await auntil(is_put)
            assert await crons() == {"nightly": "0 5 * * *", "added": None}


async def test_a_worker_that_regains_its_lease_does_not_bring_back_what_newer_code_has_removed(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    old, new = [App(dsn, name="shop", stale_schedules="remove_all") for _ in range(2)]
    for app, names in (old, ["kept", "removed"]), (new, ["kept"]):

        @app.task
        async def nightly() -> None: ...

        for name in names:
            app.schedule("1h", name=name)(nightly)

    async with old, new, Worker(old, renew="100ms"), Worker(new):
        assert [schedule.name for schedule in await new.aschedules()] == ["kept"]
        await new.schedule_named("kept").adelete()
        conn.execute("delete from stepwell.worker where 'removed' = any (schedules)")

        async def names_now() -> list[str]:
            return [schedule.name for schedule in await new.aschedules()]

        assert await auntil(names_now) == ["kept"]
