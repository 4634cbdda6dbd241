"""A task that had another name before: `@app.task(was=...)`."""

from __future__ import annotations

from typing import Any

import process_tasks
import psycopg
import pytest

from stepwell import App, ConfigError, Context, DuplicateTask, JobHandle, Limit, Rate, Retry, Unique, Worker
from stepwell.jobs.settings import settings_of


async def old_job(dsn: str, name: str = "old", *args: Any) -> JobHandle[Any]:
    """A job that the code before the change enqueued."""
    async with App(dsn) as before:

        @before.task(name=name)
        async def work(n: int) -> int:
            return n

        return await work.aenqueue(*args)


async def test_jobs_of_the_old_name_run(app: App, dsn: str, conn: psycopg.Connection[Any]) -> None:
    old = await old_job(dsn, "old", 3)

    @app.task(was="old")
    async def new(n: int) -> int:
        return n * 2

    async with Worker(app):
        assert await app.job(old.id).aresult(timeout="20s") == 6
        assert await (await new.aenqueue(4)).aresult(timeout="20s") == 8
        renamed = await app.tasks["old"].aenqueue(5)
        assert await renamed.aresult(timeout="20s") == 10
    assert conn.execute("select task from stepwell.jobs order by id").fetchall() == [("old",), ("new",), ("new",)]


async def test_several_old_names_and_their_policies(app: App, dsn: str) -> None:
    jobs = [await old_job(dsn, name, 1) for name in ("one", "two")]

    @app.task(was=["one", "two"], retry=Retry(max_attempts=2, initial=0))
    async def new(ctx: Context, n: int) -> int:
        if ctx.attempt == 1:
            raise ValueError("again")
        return await ctx.step(lambda: n + 1, key="add")

    async with Worker(app):
        for job in jobs:
            assert await app.job(job.id).aresult(timeout="20s") == 2


async def test_an_old_job_is_edited_by_the_new_code(app: App, dsn: str) -> None:
    old = await old_job(dsn, "old", 3)

    @app.task(was="old")
    async def new(n: int) -> int:
        return n

    assert await app.job(old.id).aedit_args(7)
    async with Worker(app):
        assert await app.job(old.id).aresult(timeout="20s") == 7


async def test_a_rename_keeps_unique_keys_limits_and_rates(dsn: str, conn: psycopg.Connection[Any]) -> None:
    async with App(dsn) as before, App(dsn) as app:

        @before.task(name="old", unique="{u}", limit=Limit(1), rate=Rate(5))
        async def work(u: str) -> None: ...

        @app.task(was=["old", "later"], unique="{u}", limit=Limit(1), rate=Rate(5))
        async def new(u: str) -> None: ...

        @app.task(was="other_old", unique=Unique("{u}", scope="queue"), limit=Limit(1, key="k-{u}"))
        async def other(u: str) -> None: ...

        old = await work.aenqueue("ada")
        again = await new.aenqueue("ada")
        assert (again.id, again.inserted) == (old.id, False)
        assert (await new.using(unique="ada").aenqueue("eve")).id == old.id
        assert (await app.tasks["old"].aenqueue("ada")).id == old.id
        assert (await work.using(unique="bob").aenqueue("x")).id == (await new.aenqueue("bob")).id
        assert (await other.aenqueue("ada")).inserted
        assert conn.execute(
            "select distinct admission #>> '{limits,0,key}', admission #>> '{rates,0,key}' from stepwell.job order by 1"
        ).fetchall() == [("k-ada", None), ("old", "old")]
        settings = settings_of(new)
        assert settings["limit"].value[0]["key"] == settings["rate"].value[0]["key"] == "old"


@pytest.mark.slow
async def test_a_process_runs_a_job_of_the_old_name(app: App, dsn: str) -> None:
    old = await old_job(dsn, "old", 3)
    app.task(name="new", was="old", process=True)(process_tasks.divide.fn)
    async with Worker(app):
        assert await app.job(old.id).aresult(timeout="30s") == 1 / 3


def test_names_that_clash_are_refused(dsn: str) -> None:
    app = App(dsn)

    @app.task
    async def other() -> None: ...

    with pytest.raises(DuplicateTask, match="two tasks are named 'other'"):

        @app.task(was="other")
        async def new() -> None: ...

    for was in ("again", ["a", "a"]):
        with pytest.raises(ConfigError, match="give each name once"):

            @app.task(was=was)
            async def again() -> None: ...

    for bad in (None, 5, b"old"):
        with pytest.raises(ConfigError, match="give the name that the task had before"):
            app.task(was=bad)  # type: ignore[call-overload]
    assert list(app.tasks) == ["other"]
