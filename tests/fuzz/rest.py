"""Bring a round to rest: nobody calls any more, healthy workers run what there is, and the rest is cancelled."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, LiteralString

import psycopg

from stepwell import App
from stepwell.testing import Clock

from .disturbances import release_clock
from .findings import Findings
from .known import TASKS
from .oracle import AT_REST, WHEN_EMPTY, consult
from .workers import Workers

_BUSY: LiteralString = """
select count(*) from stepwell.job j
where j.state in ('ready', 'running', 'blocked')
    -- A callback waits for members that may wait for ever.
    and not exists (select from stepwell.job_group g where g.then_id = j.id and g.finished_at is null)
  or (j.state in ('scheduled', 'waiting') and j.run_at < stepwell.now() + interval '1 second')
"""
_VERSION = version("stepwell")
_KNOWN = (*TASKS, "apart", "witness_plain", "witness_steps", "witness_paid")


def bring_to_rest(dsn: str, workers: Workers, findings: Findings, patience: float) -> None:
    """The noise has ended. Let the database come to rest and ask the oracle: now, when all that sleeps has woken, and
    when the rest was cancelled."""
    with psycopg.connect(dsn, autocommit=True, application_name="fuzz owner") as conn, App(dsn, name="fuzz") as app:
        release_clock(conn)
        conn.execute("delete from stepwell.control")
        # Somebody may have set a limit of nothing, or a rate of one in a hundred years.
        conn.execute("delete from stepwell.key_setting")
        conn.execute("delete from stepwell.queue_setting")
        conn.execute("delete from stepwell.queue_keep")
        conn.execute("select stepwell.stop_bulk(b.id) from stepwell.bulk b where b.state = 'running'")
        conn.execute("select stepwell.pause_schedule(s.owner, s.name) from stepwell.schedule s")
        # The round's own workers: what they hold is rescued by one that starts now.
        workers.end_all(signal.SIGKILL)
        rest = Rest(conn, workers)
        rest.wait(patience, lambda: time.sleep(0.1))
        report(findings, rest.consult(AT_REST), "at rest")
        with Clock(app) as clock:
            # Further than anything was put off while the clock was ahead; then on and on, for what is tried again.
            clock.advance("45d")
            rest.wait(patience, lambda: clock.advance("10s"))
            report(findings, rest.consult(AT_REST), "45 days later")
            deadline = time.monotonic() + patience
            while rest.jobs() and time.monotonic() < deadline:
                conn.execute("select count(*) from stepwell.cancel(array(select j.id from stepwell.job j), 'the end')")
                rest.wait(patience, lambda: clock.advance("10s"))
            workers.end_all(signal.SIGTERM)
            report(findings, rest.consult({**AT_REST, **WHEN_EMPTY}), "when empty")


def report(findings: Findings, found: dict[str, list[dict[str, Any]]], when: str) -> None:
    for title, rows in found.items():
        for row in rows:
            findings.add(f"{title} ({when})", str({name: str(value)[:400] for name, value in row.items()}))


class Rest:
    """One healthy worker, and a broom for what it does not know."""

    def __init__(self, conn: psycopg.Connection[Any], workers: Workers) -> None:
        self._conn = conn
        self._workers = workers

    def wait(self, patience: float, pause: Callable[[], object]) -> None:
        """Until nothing runs and nothing is due, or patience ends: then the oracle tells what there is."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self._workers.keep(1)
            self._sweep()
            if self._count(_BUSY) == 0:
                return
            pause()

    def consult(self, checks: Mapping[str, LiteralString]) -> dict[str, list[dict[str, Any]]]:
        """Ask the oracle, once what has expired is gone."""
        self._conn.execute("select stepwell.prune_events(), stepwell.prune()")
        return consult(self._conn, checks)

    def jobs(self) -> int:
        """How many are left."""
        return self._count("select count(*) from stepwell.job")

    def _count(self, query: LiteralString) -> int:
        row = self._conn.execute(query).fetchone()
        return row[0] if row else 0

    def _sweep(self) -> None:
        """End by SQL what no real worker claims. Those who were registered by SQL alone leave first."""
        conn = self._conn
        conn.execute(
            "select stepwell.unregister_worker(w.id) from stepwell.worker w where w.version <> %s", (_VERSION,)
        )
        tasks = conn.execute(
            "select distinct j.task from stepwell.job j"
            " where j.state = 'ready' and (j.task <> all (%s::text[]) or j.owner <> 'fuzz' or j.misfits is not null)",
            (list(_KNOWN),),
        ).fetchall()
        if not tasks:
            return
        with conn.transaction():
            worker = conn.execute(
                "select stepwell.register_worker('broom', 1, 'fuzz', '{*}', '{}', 1000, 60)"
            ).fetchone()
            claimed = conn.execute(
                "select c.id, c.epoch from stepwell.claim(%s, array("
                "select distinct j.queue from stepwell.job j where j.state = 'ready'), null, null, null, %s, 1000) c",
                (worker and worker[0], [task for (task,) in tasks]),
            ).fetchall()
            conn.execute(
                "select stepwell.finish(%s::uuid[], %s::integer[], null, '{86400}')",
                ([row[0] for row in claimed], [row[1] for row in claimed]),
            )
