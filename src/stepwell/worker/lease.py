"""The worker's lease, renewed by a thread and a connection of its own.

A blocked event loop or a full pool cannot lose the lease. The same thread watches the loop, because it still runs when
the loop is blocked. It hands the answers of renewals to the loop; it never touches jobs itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from stepwell.errors import StepwellError
from stepwell.errors.text import user_stack
from stepwell.postgres import queries
from stepwell.postgres.connection import open_within, sever
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_missing, is_permanent
from stepwell.postgres.fetch import fetch
from stepwell.postgres.hints import explain
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.fleet import Orders
from stepwell.worker.stack_requests import StackRequests

_TICK = 0.25
# A lease that could not be renewed is given up after this part of it, well before other workers may take the jobs.
_SAFE = 0.8
# For the last renewal and for unregistering together.
_STOP_PATIENCE = 5.0
# Seconds for each host, so that the next one is tried well before the lease ends.
_RECONNECT_TIMEOUT = 3


@dataclass(frozen=True, slots=True)
class LeaseCallbacks:
    """The functions that the lease thread calls: on the event loop, except `blocked` and `stack`, which cannot wait."""

    gained: Callable[[str], None]
    lost: Callable[[bool], None]
    """True: no answer came in time. False: the database said so."""
    obey: Callable[[Orders], None]
    failed: Callable[[Exception], None]
    """By a permanent error: it ends the worker."""
    stumbled: Callable[[Exception], None]
    """By any other error: the thread goes on."""
    blocked: Callable[[float, str], None]
    stack: Callable[[str, int], str]
    """Returns where the handler of a job is. Called with the job and the thread of the event loop, also in the lease
    thread: the event loop may be blocked, and that is when people ask."""


class Lease:
    """Registers the worker, keeps its lease, and registers it anew if the lease was lost."""

    def __init__(
        self,
        database: Database,
        register: Callable[[float, int | None], Query[str]],
        lease: float,
        renew: float,
        blocked_after: float,
        running: Callable[[], int],
        callbacks: LeaseCallbacks,
    ) -> None:
        self._database = database
        self._register = register
        self._lease = lease
        self._renew = renew
        self._blocked_after = blocked_after
        self._running = running
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._kick = threading.Event()
        self._stopping = False
        self._gate = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._opened: psycopg.Connection[Any] | None = None
        """A connection that is being set up."""
        self._worker_id: str | None = None
        self._thread = threading.Thread(target=self._run, name="stepwell-lease", daemon=True)
        self._every = renew
        self._born = self._renewed_at = time.monotonic()
        self._begun: int | None = None
        self._was_missing = False
        self._stacks = StackRequests(lambda: self._worker_id, callbacks.stack, self._loop_thread)

    def start(self) -> str:
        """Register and begin to renew. If it raises, it may be called again. Blocks: call it in a thread."""
        with self._gate:
            if self._stopping:
                # The caller no longer waits: a worker that registered now would stay registered until its lease ends.
                raise StepwellError("the worker was stopped before it registered")
            try:
                self._connection = self._connect()
            except psycopg.Error as error:
                raise explain(error, self._database.dsn) from error
            asked_at = time.monotonic()
            try:
                with self._database.explaining():
                    worker_id = self._worker_id = fetch(self._connection, self._register(0, None))[0]
                    self._renewed_at = asked_at
                    self._renew_once()
            except BaseException:
                # `start` may be called again.
                self._connection.close()
                self._connection = self._worker_id = None
                raise
            self._thread.start()
            return worker_id

    @property
    def left(self) -> float:
        """For how many seconds the lease is valid, if it is not renewed; 0: there is none."""
        return 0.0 if self._worker_id is None else max(0.0, self._renewed_at + self._lease - time.monotonic())

    def renew_now(self) -> None:
        """Renew now: the lease may be gone, or new orders may wait."""
        self._kick.set()

    def check(self) -> None:
        """Give the lease up in time when its renewal hangs, on a network without answers. For the event loop."""
        if self._overdue():
            self._lose(unanswered=True)
            self._sever()

    def hurry(self, hurried: bool) -> None:
        """Renew every second, or as usual: renewals also bring orders, when notifications do not arrive."""
        self._every = min(1.0, self._renew) if hurried else self._renew

    def stop(self) -> None:
        """Stop renewing and unregister the worker. Blocks: call it in a thread. Also safe when `start` failed, or still
        runs or has yet to begin, because its caller no longer waits for it."""
        # A server that does not answer must not keep the worker from ending.
        timer = threading.Timer(_STOP_PATIENCE, self._sever)
        timer.daemon = True
        timer.start()
        with self._gate:
            self._stopping = True
        self._kick.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._connection is not None:
            try:
                if self._worker_id is not None:
                    fetch(self._connection, queries.fleet.unregister_worker(self._worker_id))
            except psycopg.Error:
                pass  # the lease expires by itself
            finally:
                self._connection.close()
        timer.cancel()

    def _sever(self) -> None:
        for connection in (self._connection, self._opened):
            if connection is not None:
                sever(connection)

    def _run(self) -> None:
        watch = _LoopWatch(self._loop, self._loop_thread, self._blocked_after, self._callbacks.blocked)
        renew_at = time.monotonic() + self._renew
        while not self._stopping:
            kicked = self._kick.wait(_TICK)
            self._kick.clear()
            try:
                watch.look()
                if self._stopping:
                    continue
                heard = self._stacks.heard(self._connection) or kicked
                if not heard and time.monotonic() < min(renew_at, self._renewed_at + self._every):
                    continue
                renew_at = time.monotonic() + (self._every if self._try_to_renew() else _TICK)
            except StepwellError as error:  # a permanent error ends the worker, loudly
                self._tell(self._callbacks.failed, error)
                return
            except Exception as error:  # any other does not: the next round may succeed
                self._tell(self._callbacks.stumbled, error)

    def _try_to_renew(self) -> bool:
        try:
            if self._connection is None or self._connection.broken or self._connection.closed:
                self._connection = self._connect(_RECONNECT_TIMEOUT)
            if self._worker_id is None:
                asked_at = time.monotonic()
                # With its age and first number: a stop order for its former id still holds.
                worker_id = fetch(self._connection, self._register(asked_at - self._born, self._begun))[0]
                self._renewed_at, self._worker_id = asked_at, worker_id
                self._tell(self._callbacks.gained, worker_id)
            self._renew_once()
        except (psycopg.Error, OSError) as error:
            if self._database.switchovers.notice(error) and self._connection is not None:
                self._connection.close()
            was_missing, self._was_missing = self._was_missing, is_missing(error)
            if is_permanent(error) and (was_missing or not self._was_missing):
                raise explain(error, self._database.dsn) from error
            if self._overdue():
                self._lose(unanswered=True)
            return False
        self._was_missing = False
        return True

    def _connect(self, timeout: int | None = None) -> psycopg.Connection[Any]:
        """Connect without the app's `call_timeout`: after one slow renewal it would close the session, which holds the
        worker's advisory lock. `check` gives up a renewal that hangs."""
        connection = self._opened = open_within(make_conninfo(self._database.dsn, connect_timeout=timeout), None)
        try:
            self._stacks.listen(connection)
        except BaseException:
            connection.close()
            raise
        finally:
            self._opened = None
        return connection

    def _overdue(self) -> bool:
        """Whether the lease ends soon. By the database's clock it began no earlier than by ours."""
        return self._worker_id is not None and time.monotonic() > self._renewed_at + _SAFE * self._lease

    def _renew_once(self) -> None:
        assert self._connection is not None
        worker_id = self._worker_id
        if worker_id is None:
            return
        asked_at = time.monotonic()
        renewed = fetch(self._connection, queries.fleet.renew(worker_id, self._lease, self._running()))
        if worker_id != self._worker_id:
            return  # the lease was given up while we waited
        if not renewed:  # declared dead
            self._lose(unanswered=False)
            self._kick.set()
            return
        self._renewed_at = asked_at
        if self._begun is None:
            self._begun = renewed[0].number
        self._tell(self._callbacks.obey, renewed[0])
        self._stacks.answer(self._connection, worker_id, renewed[0])

    def _lose(self, *, unanswered: bool) -> None:
        self._worker_id = None
        self._tell(self._callbacks.lost, unanswered)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, *args)


@dataclass(slots=True)
class _Ping:
    """One question to the event loop. The loop writes `answered`, the lease thread the rest."""

    asked_at: float
    next_report: float
    answered: bool = False

    def answer(self) -> None:
        self.answered = True


class _LoopWatch:
    """Pings the event loop and, when it does not answer, reports its stack."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread: int, patience: float, blocked: Callable[[float, str], None]
    ) -> None:
        self._loop = loop
        self._thread = thread
        self._patience = patience
        self._blocked = blocked
        self._ping: _Ping | None = None

    def look(self) -> None:
        """Ping, or report a ping without an answer. The loop may answer at any point in here."""
        now = time.monotonic()
        ping = self._ping
        if ping is None or ping.answered:
            ping = self._ping = _Ping(now, self._patience)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(ping.answer)
            return
        waited = now - ping.asked_at
        if waited > ping.next_report:
            # Once, and again each time that it has lasted twice as long.
            ping.next_report = 2 * waited
            frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
            stack = user_stack(frame) if frame else "(no stack)"
            self._blocked(waited, stack)
