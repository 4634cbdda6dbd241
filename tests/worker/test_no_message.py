"""An error without a message is shown by its name alone, wherever it is shown."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import Heard

from stepwell import App, Context, JobFailed, Retry, Worker
from stepwell.cli.jobs.page import print_job
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.telemetry.jobs import AttemptFailed

ONCE = Retry(max_attempts=1)


async def test_an_error_without_a_message_is_its_name_alone(
    app: App, conn: psycopg.Connection[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    async def stumble() -> None:
        raise KeyError

    @app.task(retry=ONCE)
    async def child() -> None:
        raise ValueError

    @app.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        try:
            await ctx.step(stumble)
        except KeyError:
            await ctx.spawn(child)

    async with Worker(app) as worker:
        heard = Heard(worker)
        failing = await child.aenqueue()
        with pytest.raises(JobFailed, match=r"\(child\) failed: ValueError$") as caught:
            await failing.aresult("10s")
        job = await parent.aenqueue()
        with pytest.raises(
            JobFailed, match=r"\(parent\) failed: stepwell.errors.JobFailed: .*\(child\) failed: ValueError$"
        ):
            await job.aresult("10s")
    assert (caught.value.type, caught.value.message) == ("ValueError", "")
    logged = [event.text() for event in heard.of(AttemptFailed)]
    assert "attempt 1 of 1 failed (error): ValueError; it is not tried again" in logged[0]
    failed, info = await failing.ainfo(), await job.ainfo()
    assert failed is not None
    assert info is not None
    assert failed.error == "ValueError"
    assert [step.error for step in info.steps] == ["KeyError", "ValueError"]
    assert [error for _, error in fetch(conn, queries.reads.last_errors([str(failing.id)]))] == ["ValueError"]
    print_job(failed)
    shown = capsys.readouterr().out
    assert "ValueError:" not in shown
    assert shown.count("ValueError\n") >= 2


async def test_failures_recorded_before_schema_7_keep_their_type(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(retry=ONCE)
    async def empty() -> None:
        raise ValueError

    async with Worker(app):
        job = await empty.aenqueue()
        with pytest.raises(JobFailed):
            await job.aresult("10s")
    conn.execute("update stepwell.history set error = 'ValueError: ' where id = %s", (job.id,))
    with pytest.raises(JobFailed, match=r"failed: ValueError$"):
        await job.aresult("10s")
