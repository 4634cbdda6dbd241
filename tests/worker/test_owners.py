"""Two apps on one database with tasks of the same name."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import Heard

from stepwell import App, Context, Worker
from stepwell.jobs.handle import JobHandle
from stepwell.telemetry.worker import TasksShared
from stepwell.testing import adrain
from stepwell.values.job import JobInfo


async def look(job: JobHandle[Any]) -> JobInfo:
    info = await job.ainfo()
    assert info is not None
    return info


def an_app(dsn: str, name: str | None, ran: list[str]) -> App:
    app = App(dsn) if name is None else App(dsn, name=name)

    @app.task
    async def send(to: str) -> None:  # pyright: ignore[reportUnusedFunction]
        ran.append(f"{name} sends to {to}")

    @app.task
    async def parent(ctx: Context) -> None:  # pyright: ignore[reportUnusedFunction]
        await ctx.spawn(app.tasks["send"], "a child")

    return app


async def test_two_named_apps_leave_each_other_the_jobs_of_a_task_that_both_have(dsn: str) -> None:
    ran: list[str] = []
    shop, billing = an_app(dsn, "shop", ran), an_app(dsn, "billing", ran)
    async with shop, billing:
        theirs = await shop.tasks["send"].aenqueue("Ada")
        async with Worker(billing):
            ours = await billing.tasks["send"].aenqueue("Bob")
            await ours.aresult(timeout=20)
            assert (await look(theirs)).state == "ready"
            async with Worker(shop):
                await theirs.aresult(timeout=20)
        assert (await look(theirs)).owner == "shop"
    assert ran == ["billing sends to Bob", "shop sends to Ada"]


async def test_a_job_without_an_owner_is_run_by_any_worker_that_knows_the_task(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    ran: list[str] = []
    async with an_app(dsn, "shop", ran) as shop, Worker(shop):
        row = conn.execute("select stepwell.enqueue('send', '{\"to\": \"Ada\"}')::text").fetchone()
        assert row is not None
        await shop.job(row[0]).aresult(timeout=20)
    assert ran == ["shop sends to Ada"]


async def test_a_worker_of_an_app_without_a_name_claims_only_jobs_without_an_owner(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    ran: list[str] = []
    async with an_app(dsn, None, ran) as app, Worker(app):
        owned = conn.execute("select stepwell.enqueue('send', '{\"to\": \"Ada\"}', owner => 'shop')::text").fetchone()
        assert owned is not None
        free = await app.tasks["send"].aenqueue("Bob")
        await free.aresult(timeout=20)
        assert (await look(free)).owner is None
        assert (await look(app.job(owned[0]))).state == "ready"
    assert ran == ["None sends to Bob"]


async def test_children_runs_of_schedules_forks_and_retries_belong_to_the_app(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    app = App(dsn, name="shop")
    fails = True

    @app.schedule("0 0 1 1 *", args={"n": 1})
    @app.task
    async def child(n: int) -> int:
        return n

    @app.task
    async def parent(ctx: Context) -> int:
        done = await ctx.spawn(child, 2)
        if fails:
            raise RuntimeError
        return done

    def owners() -> dict[str, str | None]:
        return dict(conn.execute("select id::text, owner from stepwell.jobs").fetchall())

    async with app, Worker(app):
        # Without an owner itself: its children belong to the app that runs it all the same.
        row = conn.execute("select stepwell.enqueue('parent', max_attempts => 1)::text").fetchone()
        assert row is not None
        job = app.job(row[0])
        with pytest.raises(Exception, match="RuntimeError"):
            await job.aresult(timeout=20)
        run = await app.schedule_named("child").atrigger()
        await run.aresult(timeout=20)
        made = owners()
        assert made.pop(str(job.id)) is None
        assert list(made.values()) == ["shop", "shop"]

        theirs = await parent.using(max_attempts=1).aenqueue()
        with pytest.raises(Exception, match="RuntimeError"):
            await theirs.aresult(timeout=20)
        fails = False
        await theirs.aretry()
        assert await theirs.aresult(timeout=20) == 2
        assert (await look(theirs)).owner == "shop"
        forked = await app.afork(theirs, step="child")
        assert await forked.aresult(timeout=20) == 2
        assert (await look(forked)).owner == "shop"


async def test_a_worker_says_when_it_starts_that_another_app_may_take_its_jobs(dsn: str) -> None:
    app, billing, shop = an_app(dsn, None, []), an_app(dsn, "billing", []), an_app(dsn, "shop", [])
    async with app, billing, shop, Worker(billing):
        worker = Worker(app)
        heard = Heard(worker)
        async with worker:
            said = heard.of(TasksShared)
            assert [(one.owner, one.other, one.tasks) for one in said] == [(app.name, "billing", ("parent", "send"))]
            assert (
                said[0]
                .text()
                .startswith("this app has no name, and workers of app 'billing' also run parent, send from")
            )
            assert "name this app with App(name=...)" in said[0].text()
            third = Worker(shop)
            other = Heard(third)
            async with third:
                [rival] = other.of(TasksShared)
                assert rival.text().startswith(f"workers of app {app.name!r}, which has no name, run parent, send from")
        elsewhere = Worker(app, queues=["other.*"])
        silent = Heard(elsewhere)
        async with elsewhere:
            assert not silent.of(TasksShared)
        named = Worker(shop)
        quiet = Heard(named)
        async with named:
            assert not quiet.of(TasksShared)


async def test_drain_does_not_wait_for_the_jobs_of_another_app(dsn: str) -> None:
    ran: list[str] = []
    async with an_app(dsn, "shop", ran) as shop, an_app(dsn, "billing", ran) as billing:
        theirs = await billing.tasks["send"].aenqueue("Bob")
        await shop.tasks["send"].aenqueue("Ada")
        assert await adrain(shop) == 1
        assert (await look(theirs)).state == "ready"
    assert ran == ["shop sends to Ada"]


async def test_a_worker_of_the_version_before_claims_the_jobs_of_every_owner(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with an_app(dsn, "shop", []) as shop:
        job = await shop.tasks["send"].aenqueue("Ada")
        row = conn.execute(
            "select c.id::text from stepwell.register_worker('h', 1, '0', '{default}', '{}', 1, 60) as w (id),"
            " stepwell.claim(w.id, '{default}', '{null}', '{null}', '{null}', '{send}', 1) c"
        ).fetchone()
        assert row is not None
        assert row[0] == str(job.id)
