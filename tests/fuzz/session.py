"""One actor's connection, under a role of its own, and the moods in which it makes its calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from .dice import Dice
from .findings import Findings, is_expected
from .functions import Function
from .known import Due, Fence, Known

_IDLE = 0.4
_SETTINGS = "-c statement_timeout=4s -c lock_timeout=2s -c idle_in_transaction_session_timeout=3s"
_ISOLATIONS = ("repeatable read", "serializable", "read uncommitted")


class Session:
    """Makes calls and judges what comes back. Connects anew whenever it was cut off."""

    def __init__(
        self,
        dsn: str,
        role: str,
        allowed: set[str],
        dice: Dice,
        known: Known,
        findings: Findings,
        stop: threading.Event,
    ) -> None:
        self.role = role
        self.dice = dice
        self.known = known
        self.stop = stop
        self._dsn = dsn
        self._allowed = allowed
        self._findings = findings
        self._conn: psycopg.Connection[Any] | None = None
        self._pid = 0
        self._isolated = False

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """Open, and in autocommit."""
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(
                self._dsn,
                autocommit=True,
                prepare_threshold=None,
                application_name=f"fuzz {self.role}",
                options=_SETTINGS if self.role == "owner" else f"-c role={self.role} {_SETTINGS}",
            )
            self._pid = self._conn.info.backend_pid
        return self._conn

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()

    def call(self, function: Function, given: dict[str, Any]) -> list[Any] | None:
        """Call a function; None: it was refused."""
        what = f"stepwell.{function.name}"
        try:
            rows = self.connection.execute(function.call(given), list(given.values())).fetchall()
        except psycopg.Error as error:
            self._judge(what, error, given, allowed=function.name in self._allowed)
            raise Refused from error
        self._findings.count(what)
        self._learn(function.name, given, rows)
        return rows

    def look(self, view: str, *, allowed: bool) -> None:
        """Read a whole view."""
        try:
            self.connection.execute(sql.SQL("select * from stepwell.{}").format(sql.Identifier(view)))
        except psycopg.Error as error:
            self._judge(f"view {view}", error, {}, allowed=allowed, given_values=False)
            raise Refused from error
        self._findings.count(f"view {view}")

    def in_a_mood(self, act: Callable[[], object]) -> None:
        """Do something once or a few times: by itself, or in a transaction that ends in one of many ways."""
        if self._conn is not None and self._conn.info.transaction_status != TransactionStatus.IDLE:
            # A cancel that came in the moment of a roll-back leaves it half done.
            self._conn.close()
        mood = self.dice.random()
        with contextlib.suppress(Refused):
            if mood < 0.6:
                act()
                return
            self._transaction(mood, act)

    def _transaction(self, mood: float, act: Callable[[], object]) -> None:
        try:
            with self.connection.transaction(force_rollback=0.78 < mood < 0.85):
                self._set_up(mood)
                for _ in range(self.dice.randrange(1, 4)):
                    if self.dice.chance(0.3):
                        with (
                            contextlib.suppress(Refused),
                            self.connection.transaction(force_rollback=self.dice.chance(0.3)),
                        ):
                            act()
                    else:
                        act()
                if mood > 0.93:
                    # Idle, with all its locks; many do not get beyond this.
                    self.stop.wait(self.dice.random() * _IDLE)
        except psycopg.Error as error:
            # Deferred triggers have their say only here.
            self._judge("commit", error, {}, allowed=True)
        finally:
            self._isolated = False

    def _set_up(self, mood: float) -> None:
        with contextlib.suppress(psycopg.OperationalError):
            if mood > 0.96:
                self.connection.execute("set constraints all immediate")
            elif mood > 0.94:
                self._isolated = True
                self.connection.execute(b"set transaction isolation level " + self.dice.one(_ISOLATIONS).encode())

    def _judge(
        self, what: str, error: psycopg.Error, given: dict[str, Any], *, allowed: bool, given_values: bool = True
    ) -> None:
        self._findings.count(what, error.sqlstate or type(error).__name__)
        blameless = given_values or not (error.sqlstate or "").startswith(("22", "SW"))
        if blameless and is_expected(
            error, allowed=allowed, killed=self._pid in self.known.killed, isolated=self._isolated
        ):
            return
        where = (error.diag.context or "").splitlines()[:2]
        shown = {name: _short(value) for name, value in given.items()}
        said = _short(error.diag.message_primary or error)
        self._findings.add(
            f"{what} answered {error.sqlstate or type(error).__name__}: {said}", f"as {self.role} with {shown} {where}"
        )

    def _learn(self, name: str, given: dict[str, Any], rows: list[Any]) -> None:
        known = self.known
        match name:
            case "enqueue" | "fork" | "trigger_schedule":
                known.add(known.jobs, *[str(row[0]) for row in rows if row[0]])
            case "enqueue_many" | "spawn":
                known.add(known.jobs, *[str(made) for row in rows for made in row[0] or () if made])
            case "register_worker":
                known.add(known.workers, str(rows[0][0]))
            case "claim" | "claim_jobs":
                known.add(known.fences, *[Fence(str(row[0]), row[5], str(given["_worker_id"])) for row in rows])
            case "due_schedules":
                known.add(known.dues, *[Due(str(row[0]), row[2], row[7].isoformat()) for row in rows])
            case _:
                pass


class Refused(Exception):
    """The call did not succeed; whether that was right has been judged."""


def _short(value: object) -> str:
    text = str(value).replace("\n", " ")
    return text if len(text) <= 160 else f"{text[:100]}... ({len(text)} characters)"
