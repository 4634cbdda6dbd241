"""Settings at run time: how long the jobs of a queue are kept, and which value counts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, Context, JobCancelled, JobFailed, JobHandle, Rate, Retry, Step, Worker

DAY = 86400.0


async def kept(conn: psycopg.Connection[Any], job: JobHandle[Any]) -> float | None:
    """For how many seconds an ended job is kept."""
    [(seconds,)] = conn.execute(
        "select extract(epoch from expires_at - finished_at)::double precision from stepwell.history where id = %s",
        (job.id,),
    ).fetchall()
    return seconds


async def ended(job: JobHandle[Any]) -> None:
    with suppress(JobFailed, JobCancelled):
        await job.aresult(timeout="20s")


async def test_the_queue_decides_where_neither_job_nor_task_says(dsn: str, conn: psycopg.Connection[Any]) -> None:
    app = App(dsn, keep="3d", keep_failed="4d")

    @app.task(queue="mail", retry=Retry(max_attempts=1))
    async def plain(fails: bool = False) -> None:
        if fails:
            raise ValueError

    @app.task(queue="mail", keep="5d", keep_failed="6d", retry=Retry(max_attempts=1))
    async def own(fails: bool = False) -> None:
        if fails:
            raise ValueError

    async def last(ctx: Context) -> None: ...

    chain = app.chain("chain", Step(last, transaction=True), queue="mail")
    async with app, Worker(app):
        await app.aset_queue("mail", keep="1d", keep_failed="2d")
        jobs: dict[str, JobHandle[Any]] = {
            "queue": await plain.aenqueue(),
            "queue failed": await plain.aenqueue(True),
            "queue, a step apart": await chain.aenqueue(),
            "task": await own.aenqueue(),
            "task failed": await own.aenqueue(True),
            "enqueue": await plain.using(keep="8d").aenqueue(),
            "enqueue failed": await plain.using(keep_failed="9d").aenqueue(True),
            "other queue": await plain.using(queue="default").aenqueue(),
        }
        # Without a worker: the database knows the task from those that are registered.
        cancelled = {"queue cancelled": plain, "task cancelled": own}
        for name, task in cancelled.items():
            jobs[name] = await task.using(delay="1h").aenqueue()
            await jobs[name].acancel()
        for job in jobs.values():
            await ended(job)
        assert {name: await kept(conn, job) for name, job in jobs.items()} == {
            "queue": DAY,
            "queue failed": 2 * DAY,
            "queue, a step apart": DAY,
            "task": 5 * DAY,
            "task failed": 6 * DAY,
            "enqueue": 8 * DAY,
            "enqueue failed": 9 * DAY,
            "other queue": 3 * DAY,
            "queue cancelled": 2 * DAY,
            "task cancelled": 6 * DAY,
        }
        assert conn.execute(
            "select extract(epoch from expires_at - failed_at)::integer from stepwell.failure where job_id = %s",
            (jobs["queue failed"].id,),
        ).fetchall() == [(2 * DAY,)]
        await app.aset_queue("mail", keep=None, keep_failed="forever")
        job, failed = await plain.aenqueue(), await plain.aenqueue(True)
        await asyncio.gather(ended(job), ended(failed))
        assert await kept(conn, job) == 3 * DAY
        [(forever,)] = conn.execute(
            "select expires_at = 'infinity' from stepwell.history where id = %s", (failed.id,)
        ).fetchall()
        assert forever
        await app.aset_queue("mail", keep=0)
        gone = await plain.aenqueue()
        await auntil(lambda: not conn.execute("select from stepwell.jobs where id = %s", (gone.id,)).rowcount)


async def test_retry_timeout_and_queue_come_from_the_enqueue_the_task_or_the_app(dsn: str) -> None:
    app = App(dsn, retry=Retry(max_attempts=3, initial=0), timeout="30s", queue="of-app")
    seen: dict[str, tuple[int, str, str]] = {}

    @app.task(name="of-app")
    async def of_app(sleeps: bool = False) -> None:
        if sleeps:
            await asyncio.sleep(30)
        raise ValueError

    @app.task(name="of-task", retry=Retry(max_attempts=2, initial=0), timeout="50ms", queue="of-task")
    async def of_task(sleeps: bool = False) -> None:
        if sleeps:
            await asyncio.sleep(30)
        raise ValueError

    async with app, Worker(app, queues=["of-*"]):
        jobs: dict[str, JobHandle[Any]] = {
            "app": await of_app.aenqueue(),
            "task": await of_task.aenqueue(),
            "task, timeout": await of_task.aenqueue(True),
            "enqueue": await of_task.using(retry=Retry(max_attempts=1), queue="of-enqueue").aenqueue(),
            "enqueue, timeout": await of_app.using(timeout="50ms").aenqueue(True),
        }
        for name, job in jobs.items():
            await ended(job)
            info = await job.ainfo()
            assert info is not None
            assert info.error is not None
            seen[name] = (info.attempt, info.queue, info.error.split(":")[0])
    assert seen == {
        "app": (3, "of-app", "ValueError"),
        "task": (2, "of-task", "ValueError"),
        "task, timeout": (2, "of-task", "TimeoutError"),
        "enqueue": (1, "of-enqueue", "ValueError"),
        "enqueue, timeout": (3, "of-app", "TimeoutError"),
    }


async def test_a_job_of_a_dead_worker_is_kept_as_its_queue_says(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work() -> None: ...

    await app.aset_queue("default", keep_failed="1d")
    job = await work.aenqueue()
    tasks = '{"work": {"max_attempts": 1, "keep_failed": 777, "by_queue": true}, "own": {"keep_failed": 777}}'
    [(worker,)] = conn.execute(
        "select stepwell.register_worker('here', 7, '0', '{default}', %s, 5, 60)::text", (tasks,)
    ).fetchall()
    conn.execute(
        "select stepwell.claim_jobs(%s::uuid, '{default}', '{null}', '{null}', '{null}', '{work}', 1)", (worker,)
    )
    conn.execute("update stepwell.worker set lease_until = stepwell.now() - interval '1 hour'")
    conn.execute("select stepwell.rescue_jobs()")
    assert await kept(conn, job) == DAY
    # Workers of schema 9 do not say whose value it is.
    assert conn.execute("select stepwell.keep_failed_of(null, %s::jsonb -> 'own', 'default')", (tasks,)).fetchall() == [
        (777.0,)
    ]


def test_a_call_changes_what_it_names(dsn: str, conn: psycopg.Connection[Any]) -> None:
    def settings() -> tuple[Any, ...]:
        row = conn.execute(
            'select "limit", rate, burst, keep, keep_failed, paused_at is not null from stepwell.queues'
        ).fetchone()
        assert row is not None
        return row

    with App(dsn) as app:
        app.set_queue("mail", limit=10, rate=Rate(50, burst=9), keep="1d", paused=True)
        assert settings() == (10, 50, 9, DAY, None, True)
        app.set_queue("mail", rate=None, keep_failed="forever", paused=False)
        assert settings() == (10, None, None, DAY, float("inf"), False)
        app.set_queue("mail", limit=0)
        assert settings()[0] == 0
        refused: list[dict[str, Any]] = [
            {},
            {"keep": -1},
            {"keep": "long"},
            {"paused": None},
            {"rate": 5},
            {"limit": True},
        ]
        for wrong in refused:
            with pytest.raises(ConfigError):
                app.set_queue("mail", **wrong)
        with pytest.raises(TypeError, match=r"app.set_queue\(\) has no option 'limt': did you mean 'limit'"):
            app.set_queue("mail", limt=3)  # pyright: ignore[reportCallIssue]
        app.set_queue("mail", limit=None, keep=None, keep_failed=None)
        assert conn.execute("select from stepwell.queues").fetchall() == []
        conn.execute("select stepwell.set_queue('mail', most => 3, rate => 2, keep => 60, paused => true)")
        assert settings() == (3, 2, 2, 60, None, True)
        for call in ("keep => -1", "keep => 'NaN'", "remove => '{limits}'", "burst => 3", "remove => '{null}'"):
            with pytest.raises(psycopg.Error, match="stepwell: "):
                conn.execute(f"select stepwell.set_queue('mail', {call})")  # pyright: ignore[reportArgumentType, reportCallIssue]
