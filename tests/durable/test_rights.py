"""A role that may emit and send, and nothing else, reaches the jobs that wait; one that may look sees their steps."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from stepwell import App, Context, Worker


async def test_grants_for_emitting_and_looking_are_enough(app: App, dsn: str, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def waits(ctx: Context) -> list[int]:
        first = await ctx.wait_for("go", timeout="20s")
        return [first.value, (await ctx.receive("more", timeout="20s")).value]

    name = sql.Identifier(f"r{uuid4().hex[:12]}")
    conn.execute(sql.SQL("create role {}").format(name))
    for grant in (
        "usage on schema stepwell",
        "execute on function stepwell.emit, stepwell.send",
        "select on stepwell.jobs, stepwell.failures, stepwell.steps",
    ):
        conn.execute(sql.SQL("grant {} to {}").format(sql.SQL(grant), name))
    try:
        async with Worker(app):
            job = await waits.aenqueue()
            with psycopg.connect(dsn, autocommit=True) as theirs:
                theirs.execute(sql.SQL("set session authorization {}").format(name))
                theirs.execute("select stepwell.emit('go', value => '1')")
                theirs.execute("select stepwell.send(%s, 'more', '2')", (job.id,))
                assert await job.aresult(timeout="20s") == [1, 2]
                steps = theirs.execute("select key from stepwell.steps where job_id = %s order by n", (job.id,))
                assert [key for (key,) in steps] == ["wait:go", "receive:more"]
    finally:
        conn.execute(sql.SQL("drop owned by {}").format(name))
        conn.execute(sql.SQL("drop role {}").format(name))
