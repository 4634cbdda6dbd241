"""Bring a round to rest: nobody calls any more, healthy workers run what there is, and the rest is cancelled."""

from __future__ import annotations

import signal
import time
from typing import Any, LiteralString

import psycopg

from .disturbances import release_clock
from .findings import Findings
from .known import TASKS
from .oracle import AT_REST, WHEN_EMPTY, consult
from .workers import Workers

_BUSY: LiteralString = """
select count(*) from stepwell.job j
where j.state in ('ready', 'running', 'blocked')
  or (j.state in ('scheduled', 'waiting') and j.run_at < stepwell.now() + interval '1 second')
"""
_KNOWN = (*TASKS, "apart", "witness_plain", "witness_steps", "witness_paid")


def bring_to_rest(conn: psycopg.Connection[Any], workers: Workers, findings: Findings, patience: float) -> None:
    """The noise has ended. Let the database come to rest and ask the oracle; then end all jobs, and ask again."""
    release_clock(conn)
    conn.execute("delete from stepwell.control")
    conn.execute("select stepwell.pause_schedule(s.owner, s.name) from stepwell.schedule s")
    # The round's own workers: what they hold is rescued by one that starts now.
    workers.end_all(signal.SIGKILL)
    workers.keep(1)
    broom = Broom(conn)
    _await_rest(conn, broom, workers, patience)
    conn.execute("select stepwell.prune_events()")
    report(findings, consult(conn, AT_REST), "at rest")
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        conn.execute(
            "select count(*) from stepwell.cancel(array(select j.id from stepwell.job j), 'the round is over')"
        )
        _await_rest(conn, broom, workers, 2)
        if conn.execute("select from stepwell.job limit 1").fetchone() is None:
            break
    workers.keep(1)
    workers.end_all(signal.SIGTERM)
    report(findings, consult(conn, {**AT_REST, **WHEN_EMPTY}), "when empty")


def report(findings: Findings, found: dict[str, list[dict[str, Any]]], when: str) -> None:
    for title, rows in found.items():
        for row in rows:
            findings.add(f"{title} ({when})", str({name: str(value)[:400] for name, value in row.items()}))


def _await_rest(conn: psycopg.Connection[Any], broom: Broom, workers: Workers, patience: float) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        workers.keep(1)
        broom.sweep()
        row = conn.execute(_BUSY).fetchone()
        if row == (0,):
            return
        time.sleep(0.1)


class Broom:
    """Ends by SQL what no real worker knows: a worker of all names there are."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def sweep(self) -> None:
        """One look; those who were registered by SQL alone leave first."""
        conn = self._conn
        conn.execute(
            "select stepwell.unregister_worker(w.id) from stepwell.worker w where w.version = 'fuzz' or w.pid = 1"
        )
        worker = conn.execute("select stepwell.register_worker('broom', 1, 'fuzz', '{*}', '{}', 1000, 60)").fetchone()
        assert worker is not None
        with conn.transaction():
            claimed = conn.execute(
                "select c.id, c.epoch from stepwell.claim(%s,"
                " array(select distinct j.queue from stepwell.job j where j.state = 'ready'), null, null, null,"
                " array(select distinct j.task from stepwell.job j where j.state = 'ready'"
                " and j.task <> all (%s::text[])), 1000) c",
                (worker[0], list(_KNOWN)),
            ).fetchall()
            conn.execute(
                "select stepwell.finish(%s::uuid[], %s::integer[], null, '{86400}')",
                ([row[0] for row in claimed], [row[1] for row in claimed]),
            )
        conn.execute("select stepwell.unregister_worker(%s)", worker)
