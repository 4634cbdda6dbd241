"""The schema as version 5 made it, the calls of its code, and the rights that its documentation had people grant."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString, cast

from psycopg import sql

from .dump import Connection

_HERE = Path(__file__).parent

WORKER: tuple[LiteralString, ...] = (
    "usage on schema stepwell",
    "execute on all functions in schema stepwell",
    "select on stepwell.jobs, stepwell.failures, stepwell.steps, stepwell.queues, stepwell.workers, stepwell.schedules,"
    " stepwell.ticks, stepwell.controls, stepwell.stats",
)
PRODUCER: tuple[LiteralString, ...] = (
    "usage on schema stepwell",
    "execute on function stepwell.enqueue, stepwell.enqueue_many",
    "execute on function stepwell.results",
    "execute on function stepwell.emit, stepwell.send",
)


def make_version_5(conn: Connection) -> None:
    """Run what "stepwell migrate --sql" of the last code of version 5 printed."""
    conn.execute(cast("LiteralString", (_HERE / "version_5.sql").read_text()))


def grant(conn: Connection, role: str, grants: tuple[LiteralString, ...]) -> None:
    for what in grants:
        conn.execute(sql.SQL("grant {} to {}").format(sql.SQL(what), sql.Identifier(role)))


def version_5_calls() -> list[LiteralString]:
    """Every call that code of version 5 makes, with nulls for its parameters."""
    lines = (_HERE / "version_5_calls.sql").read_text().splitlines()
    return [cast("LiteralString", line) for line in lines if not line.startswith("--")]
