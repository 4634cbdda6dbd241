"""The schema as version 5 made it, the calls of its code, and the rights that its documentation had people grant."""

from __future__ import annotations

import json
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


Held5 = tuple[str, int]
"""A claimed job and its epoch."""


class Version5:
    """A worker that calls as code of version 5 does: with the parameters it knows, reading the columns it knows."""

    def __init__(self, conn: Connection, *tasks: str) -> None:
        self._conn = conn
        self._tasks = list(tasks)
        self._id = self._one(
            "select stepwell.register_worker('h', 1, '0.5', array['default'], %s::text, 10, 60::float8)::text",
            json.dumps({task: {} for task in tasks}),
        )

    def claim(self, limit: int) -> list[Held5]:
        return [job for job, _ in self.claim_with_journals(limit)]

    def claim_with_journals(self, limit: int) -> list[tuple[Held5, str]]:
        rows = self._conn.execute(
            "select id::text, epoch, journal from stepwell.claim(%s::uuid, array['default'], array[null]::integer[],"
            " array[null]::timestamptz[], array[null]::uuid[], %s, %s, null::double precision[])",
            (self._id, self._tasks, limit),
        )
        return sorted(((job_id, epoch), journal) for job_id, epoch, journal in rows)

    def save_step(self, job: Held5, key: str, n: int) -> None:
        refused = self._one(
            "select refused from stepwell.save_steps(array[%s]::uuid[], array[%s]::integer[], array[%s], array[%s],"
            " '{step}', '{1}', '{null}', '{7}', '{0.5}', '{f}', '{f}', '{f}')",
            *job, key, n,
        )  # fmt: skip
        assert not refused

    def spawn(self, job: Held5, key: str, n: int, task: str) -> None:
        children = self._one(
            "select stepwell.spawn(array[%s]::uuid[], array[%s]::integer[], array[%s], array[%s], array[%s],"
            " array['{}'], '{default}', '{0}', '{0}', '{null}', '{null}', '{null}')::text[]",
            *job, key, n, task,
        )  # fmt: skip
        assert children != [None]

    def suspend(self, job: Held5, groups: list[list[str]]) -> None:
        wait = json.dumps({"steps": [], "groups": groups, "at_once": False})
        call = "select stepwell.suspend(array[%s]::uuid[], array[%s]::integer[], array[%s])"
        assert self._one(call, *job, wait) == []

    def advance(self, job: Held5, left: str, cursor: str, n: int) -> None:
        call = (
            "select stepwell.advance(array[%s]::uuid[], array[%s]::integer[], array[%s], array[%s], '{1}', array[%s],"
            " '{null}', '{null}')"
        )
        assert self._one(call, *job, left, cursor, n) == []

    def fail(self, job: Held5, *, delay: float | None, max_attempts: int) -> None:
        call = (
            "select stepwell.fail(array[%s]::uuid[], array[%s]::integer[], '{error}', '{ValueError}', '{no}', '{null}',"
            " array[%s]::float8[], array[%s]::integer[], '{60}', '{null}', '{}', '{null}')"
        )
        assert self._one(call, *job, delay, max_attempts) == []

    def snooze(self, job: Held5) -> None:
        assert self._one("select stepwell.snooze(array[%s]::uuid[], array[%s]::integer[], '{0}')", *job) == []

    def finish(self, job: Held5) -> None:
        call = (
            "select stepwell.finish(array[%s]::uuid[], array[%s]::integer[], '{1}', '{60}', '{succeeded}', '{null}',"
            " null)"
        )
        assert self._one(call, *job) == []

    def _one(self, call: LiteralString, *params: object) -> object:
        row = self._conn.execute(call, params).fetchone()
        return row and row[0]
