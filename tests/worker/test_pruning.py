"""Pruning keeps up with what expires: batch after batch, each as large as a moment allows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Worker


@pytest.mark.slow
async def test_what_expires_faster_than_one_batch_takes_away_is_pruned_all_the_same(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def work() -> None: ...

    expired = "stepwell.now() - interval '1 minute'"
    count = 25_000
    for statement in (
        f"insert into stepwell.large_value (job_id, expires_at, key, value)"
        f" select gen_random_uuid(), {expired}, 'k', '1' from generate_series(1, {count})",
        f"insert into stepwell.event (emitted_at, expires_at, name, key)"
        f" select {expired}, {expired}, 'e', '' from generate_series(1, {count})",
        f"insert into stepwell.stat (minute, queue, task)"
        f" select stepwell.now() - interval '30 days' - n * interval '1 minute', 'q', 't'"
        f" from generate_series(1, {count}) n",
        "insert into stepwell.failure"
        " (job_id, expires_at, failed_at, claimed_at, epoch, attempt, reason, type, message)"
        f" select gen_random_uuid(), stepwell.now() - interval '9 days', stepwell.now(), stepwell.now(), 1, 1, 'error',"
        f" 'E', 'm' from generate_series(1, {count})",
    ):
        with conn.transaction():
            conn.execute("set local session_replication_role = replica")  # without the trigger of events
            conn.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def left() -> bool:
        query = (
            "select exists (select from stepwell.large_value) or exists (select from stepwell.event)"
            " or exists (select from stepwell.failure) or exists (select from stepwell.stat)"
        )
        return conn.execute(query).fetchone() == (True,)

    assert left()
    async with Worker(app):
        await auntil(lambda: not left(), within=30)
