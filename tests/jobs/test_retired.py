"""Tasks that the code no longer has: `app.retire(...)`."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, ConfigError, Context, DuplicateTask, JobCancelled, Retry, Worker
from stepwell.telemetry.worker import RetiredDrained, WorkerStarted


async def test_jobs_of_a_retired_task_end_as_cancelled_and_are_counted(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    ran: list[int] = []
    async with App(dsn) as before:

        @before.task(name="old", queue="mail")
        async def old(n: int) -> None:
            ran.append(n)

        jobs = await old.aenqueue_many([{"n": n} for n in range(5)])
        # With args that no code reads.
        conn.execute("select stepwell.enqueue('old', '{\"anything\": [1]}', queue => 'mail')")

    @app.task
    async def other() -> str:
        return "ran"

    app.retire("old", queue="mail")
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        with pytest.raises(JobCancelled, match="the task 'old' is retired"):
            await app.job(jobs[0].id).aresult(timeout="20s")
        assert await (await other.aenqueue()).aresult(timeout="20s") == "ran"
        await auntil(lambda: conn.execute("select from stepwell.history where task = 'old'").rowcount == 6)
    [started] = heard.of(WorkerStarted)
    assert "old (retired)" in started.text()
    drained = heard.of(RetiredDrained)
    assert (sum(event.count for event in drained), ran) == (6, [])
    assert "of the retired task 'old' as cancelled, without running any" in drained[0].text()
    [row] = conn.execute("select sum(cancelled), sum(succeeded) from stepwell.stats where task = 'old'").fetchall()
    assert row == (6, 0)
    assert conn.execute("select distinct state::text, error from stepwell.jobs where task = 'old'").fetchall() == [
        ("cancelled", "the task 'old' is retired")
    ]


@pytest.mark.slow
async def test_a_durable_job_whose_undo_is_gone_ends_and_says_so(app: App, dsn: str) -> None:
    before = App(dsn)

    @before.task(name="old", retry=Retry(max_attempts=1))
    async def old(ctx: Context) -> None:
        await ctx.step(lambda: 1, key="charge", undo=lambda: None)
        await ctx.wait_for("never")

    async with before, Worker(before):
        job = await old.aenqueue()
        await auntil(lambda: _state(before, job.id, "waiting"))
    app.retire("old")
    await app.aemit("never")
    async with Worker(app):
        await auntil(lambda: _state(app, job.id, "cancelled"))
    info = await app.job(job.id).ainfo()
    assert info is not None
    assert info.error == (
        "the task 'old' is retired; and undoing it failed: Retired: the task 'old' is retired, and its undo functions "
        "are gone with it"
    )


async def _state(app: App, job_id: Any, state: str) -> bool:
    info = await app.job(job_id).ainfo()
    return info is not None and info.state == state


def test_a_name_is_a_task_or_retired(app: App) -> None:
    @app.task(was="older")
    async def work() -> None: ...

    for name in ("work", "older"):
        with pytest.raises(DuplicateTask, match=f"task '{name}' is retired, and it is also .*work.*leave app.retire"):
            app.retire(name)
    app.retire("gone", "gone_too")

    async def again() -> None: ...

    with pytest.raises(DuplicateTask, match="task 'gone' is retired, and it is also"):
        app.task(name="gone")(again)
    with pytest.raises(DuplicateTask, match="'gone_too' is retired, and"):
        app.task(name="new", was="gone_too")(again)
    with pytest.raises(DuplicateTask, match="'gone' is retired twice"):
        app.retire("gone")
    with pytest.raises(ConfigError, match="retire which task"):
        app.retire()
    with pytest.raises(ConfigError, match="task 'gone' is retired: a worker would end its job"):
        app.tasks["gone"].enqueue()
