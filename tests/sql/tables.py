"""What the tables say of jobs and failures, in the words of the model."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from .calls import Connection, one
from .model import Failure


def read_jobs(conn: Connection) -> dict[str, dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            """
            select id::text, state::text, task, queue, -priority as rank, epoch, attempt, max_attempts, cancelling,
              extract(epoch from run_at)::double precision as run_at,
              extract(epoch from enqueued_at)::double precision as enqueued_at,
              extract(epoch from claimed_at)::double precision as claimed_at,
              extract(epoch from finished_at)::double precision as finished_at,
              extract(epoch from expires_at)::double precision as expires_at,
              worker_id::text as worker, result::text, split_part(error, ':', 1) as error
            from stepwell.jobs
            """
        ).fetchall()
    jobs = {row["id"]: row for row in rows}
    assert len(jobs) == len(rows), "a job is doubled"
    return jobs


def read_failures(conn: Connection) -> list[Failure]:
    rows = conn.execute(
        """
        select job_id::text, epoch, attempt, reason, worker_id::text,
          extract(epoch from claimed_at)::double precision,
          extract(epoch from failed_at)::double precision,
          extract(epoch from expires_at)::double precision
        from stepwell.failure
        """
    )
    return sorted(Failure(*row) for row in rows)


def read_permits(conn: Connection) -> list[tuple[str, str]]:
    return sorted(conn.execute("select key, job_id::text from stepwell.permit").fetchall())


def read_unique_keys(conn: Connection) -> list[tuple[str, str]]:
    return sorted(conn.execute("select key, job_id::text from stepwell.unique_key").fetchall())


def next_rate_due(conn: Connection) -> float | None:
    """In how many seconds the bucket of a rate has a token again for a job in line."""
    return one(conn.execute("select extract(epoch from min(next_at) - stepwell.now())::float8 from stepwell.bucket"))
