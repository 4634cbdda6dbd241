"""What happens to everybody at once: sessions are killed, workers die, the clock is set, pauses are lifted again."""

from __future__ import annotations

import signal
from typing import Any

import psycopg

from .dice import Dice
from .known import Known
from .session import Session
from .workers import Workers

_BACKENDS = """
select a.pid from pg_stat_activity a
where a.datname = current_database() and a.application_name like 'fuzz%' and a.pid <> pg_backend_pid()
  and a.application_name <> 'fuzz owner'
"""


class Killer:
    """Ends or interrupts a session of somebody: one that calls, or one of a real worker."""

    def __init__(self, owner: Session, known: Known) -> None:
        self._owner = owner
        self._known = known

    def __call__(self) -> None:
        dice, conn = self._owner.dice, self._owner.connection
        pids = [row[0] for row in conn.execute(_BACKENDS)]
        if not pids:
            return
        pid = dice.one(pids)
        if dice.chance(0.5):
            self._known.killed.add(pid)
            conn.execute("select pg_terminate_backend(%s)", (pid,))
        else:
            conn.execute("select pg_cancel_backend(%s)", (pid,))


class Reaper:
    """Kills real workers, and has others take their place."""

    def __init__(self, dice: Dice, workers: Workers, count: int) -> None:
        self._dice = dice
        self._workers = workers
        self._count = count

    def __call__(self) -> None:
        self._workers.keep(self._count)
        if self._dice.chance(0.3):
            self._workers.end_one(self._dice.random(), self._dice.one((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            self._workers.keep(self._count)


class Clockmaker:
    """Stops the clock, sets it ahead or back for a moment, and lets it go on."""

    def __init__(self, owner: Session) -> None:
        self._owner = owner

    def __call__(self) -> None:
        dice, conn = self._owner.dice, self._owner.connection
        by = dice.one(("1 second", "10 seconds", "1 hour", "40 days", "-1 second", "-1 hour"))
        try:
            _set_clock(conn, by)
            self._owner.stop.wait(dice.random() * 0.6)
        finally:
            release_clock(self._owner.connection)


class Orderly:
    """Lifts the pauses that operators have made, or nothing would run for most of the round; and learns who works."""

    def __init__(self, owner: Session, known: Known) -> None:
        self._owner = owner
        self._known = known

    def __call__(self) -> None:
        conn = self._owner.connection
        conn.execute(
            "delete from stepwell.control where action = 'pause' and asked_at < stepwell.now() - interval '0.3 s'"
        )
        found = [str(row[0]) for row in conn.execute("select id from stepwell.worker where owner = 'fuzz' and pid > 1")]
        self._known.add(self._known.real_workers, *found[:2])


def _set_clock(conn: psycopg.Connection[Any], by: str) -> None:
    with conn.transaction():
        conn.execute("delete from stepwell.clock")
        conn.execute("insert into stepwell.clock (at) values (clock_timestamp() + %s::interval)", (by,))


def release_clock(conn: psycopg.Connection[Any]) -> None:
    conn.execute("delete from stepwell.clock")
