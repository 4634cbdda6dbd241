"""One database, and one process that forks workers, for all sweeps of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell import App, JobHandle
from stepwell.testing import CrashSweep

_EFFECTS = """
create schema sweep;
create table sweep.effect (n bigint generated always as identity, root text, kind text, what text);
"""
_WAITS = """
select s.job_id::text, s.kind, s.event, nullif(s.event_key, ''),
  (select count(*) from stepwell.step t where t.job_id = s.job_id and t.event = s.event and not t.pending)
from stepwell.step s
where s.pending and s.event is not null and s.until is null and s.event <> 'never'
order by s.job_id, s.n
"""


class Bench:
    """Sweeps, and what they need: effects as values, and somebody who answers those who wait."""

    def __init__(self, app: App, sweep: CrashSweep, conn: psycopg.Connection[Any]) -> None:
        self.app = app
        self.sweep = sweep
        self._conn = conn

    def effects(self, job: JobHandle[Any]) -> dict[str, Any]:
        """Done by steps: however often. In transactions: each time. Undone: in order, the first time each."""
        rows = self._conn.execute(
            "select kind, what from sweep.effect where root = %s order by n", (str(job.id),)
        ).fetchall()
        left = self._conn.execute("select count(*) from stepwell.step").fetchone()
        return {
            "done": sorted({what for kind, what in rows if kind == "do"}),
            "paid": sorted(what for kind, what in rows if kind == "tx"),
            "undone": list(dict.fromkeys(what for kind, what in rows if kind == "undo")),
            "steps left": left and left[0],
        }

    def answer(self, job: JobHandle[Any]) -> bool:
        """Emit or send what is waited for without a limit: which one of that name it is."""
        return self._answer(lambda event, before: f"{event} {before}")

    def unnumbered_answer(self, job: JobHandle[Any]) -> bool:
        """The same, with its name only: for those who wait side by side."""
        return self._answer(lambda event, _: event)

    def _answer(self, value_of: Callable[[str, int], str]) -> bool:
        waits = self._conn.execute(_WAITS).fetchall()
        for job_id, kind, event, key, before in waits[:1]:
            value = value_of(event, before)
            if event == "cancel":
                self.app.job(key).cancel("asked for")
            elif kind == "receive":
                self.app.job(job_id).send(event, value)
            else:
                self.app.emit(event, key=key, value=value)
        return bool(waits)


@pytest.fixture(scope="session")
def bench(server_dsn: str) -> Iterator[Bench]:
    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("create database {} template stepwell_template").format(sql.Identifier(name)))
    dsn = make_conninfo(server_dsn, dbname=name)
    before = os.environ.get("STEPWELL_DATABASE_URL")
    os.environ["STEPWELL_DATABASE_URL"] = dsn
    from tests.sweep.program import app

    assert name in app.dsn, "somebody has used the program's app before"
    with psycopg.connect(dsn, autocommit=True) as conn, app:
        conn.execute(_EFFECTS)
        with CrashSweep(app, program="tests.sweep.program:app") as sweep:
            yield Bench(app, sweep, conn)
    if before is None:
        del os.environ["STEPWELL_DATABASE_URL"]
    else:
        os.environ["STEPWELL_DATABASE_URL"] = before
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
