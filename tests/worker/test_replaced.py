"""A function that is not there: for a moment, as while a migration replaces it, or for good."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import Heard

from stepwell import App, Worker
from stepwell.errors import DatabaseError
from stepwell.telemetry.worker import DatabaseLost


async def test_a_worker_outlives_the_moment_in_which_a_function_is_replaced(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def work() -> int:
        return 1

    worker = Worker(app, poll=0.1)
    heard = Heard(worker)
    async with worker:
        conn.execute("alter function stepwell.claim_jobs rename to claim_away")
        job = await work.aenqueue()
        await heard.wait_for(DatabaseLost)
        conn.execute("alter function stepwell.claim_away rename to claim_jobs")
        assert await job.aresult(timeout="10s") == 1


@pytest.mark.slow
async def test_a_worker_ends_when_a_function_stays_away(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    conn.execute("drop function stepwell.claim_jobs")
    with pytest.raises(DatabaseError, match=r'missing or incomplete: run "stepwell migrate" .*stepwell\.claim_jobs'):
        await Worker(app, poll=0.1).run()
