"""What these tests look up."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from waiting import auntil

from stepwell import Worker
from stepwell.jobs.handle import JobHandle
from stepwell.values.job import JobInfo


def one(conn: psycopg.Connection[Any], query: LiteralString, *params: object) -> Any:
    """The first column of the first row; None: there is no row."""
    row = conn.execute(query, params).fetchone()
    return row and row[0]


async def known(job: JobHandle[Any]) -> JobInfo:
    """All that is known of a job."""
    info = await job.ainfo()
    assert info is not None
    return info


def reasons(info: JobInfo) -> list[str]:
    """Why its attempts failed."""
    return [failure.reason for failure in info.failures]


async def renews_for(conn: psycopg.Connection[Any], worker: Worker, seconds: float) -> None:
    """Wait until a worker has renewed its lease, under the same id, so many seconds from now."""
    then = one(conn, "select stepwell.now() + %s * interval '1 second'", seconds)
    worker_id = worker.id
    await auntil(lambda: one(conn, "select renewed_at > %s from stepwell.workers where id = %s", then, worker_id))
