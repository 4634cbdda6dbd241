"""Wait for jobs to end, or to change: one thread and one listening connection per process, for any number of callers.

NOTIFY wakes the thread when a job ends; a poll finds what NOTIFY missed. Other changes have no notification: the thread
looks up all watched jobs together, several times a second. A waiting process holds a shared advisory lock, which tells
workers that notifications are wanted. The lock is only a hint: any role may hold it exclusively, and then only the poll
finds results. The thread starts with the first caller and ends when no caller has waited for a while. A caller gives up
when the database has not answered for the app's `call_timeout`; the thread keeps trying for the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
from concurrent.futures import Future
from math import inf
from typing import Any, TypeVar

import psycopg

from stepwell.errors import AppClosed, DatabaseTimeout
from stepwell.jobs.doubts import Doubts
from stepwell.jobs.watches import Watch, Watches
from stepwell.postgres import queries
from stepwell.postgres.connection import is_read_only_now
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_read_only_error, is_transient, where
from stepwell.postgres.fetch import fetch
from stepwell.postgres.threads import running_loop
from stepwell.values.change import JobSnapshot
from stepwell.values.duration import describe
from stepwell.values.job import Ended

_LINGER = 5.0
_POLL = 1.0
# Right after the start, a job may be ended by a transaction that looked for listeners before there was one.
_EARLY_POLLS = (0.05, 0.2, 0.5)
# How often watched jobs are looked up. Workers write progress as often. A look takes at most a tenth of the time.
_WATCH = 0.25
_WATCH_SHARE = 10
_AT_ONCE = 1000
_DOUBT = 0.1
_PATIENCE = 5.0

T = TypeVar("T")


class Waiter:
    """Resolves a future for each awaited job. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._futures: dict[str, list[Future[Ended]]] = {}
        self._unasked: set[str] = set()
        self._doubts = Doubts()
        self._watches = Watches(self._lock)
        self._thread: threading.Thread | None = None
        self._wake: int | None = None
        self._closing = False
        self._answered_at = -inf
        self._process = os.getpid()

    @property
    def hears(self) -> bool:
        return time.monotonic() - self._answered_at < 2 * _POLL

    def wait(self, job_id: str) -> Future[Ended]:
        """Return a future for the end of this job. Cancel it to give up."""
        self._database.check_use()
        future: Future[Ended] = Future()
        self._forget_after_fork()
        with self._lock:
            self._futures.setdefault(job_id, []).append(future)
            self._unasked.add(job_id)
            self._start_or_stir()
        return future

    def watch(self, job_id: str) -> Watch:
        """Watch a job: `next_state` returns a future for each of its states. End with `unwatch`."""
        self._database.check_use()
        watch = Watch(job_id)
        self._forget_after_fork()
        with self._lock:
            self._watches.add(watch)
            self._start_or_stir()
        return watch

    def next_state(self, watch: Watch) -> Future[JobSnapshot]:
        self._forget_after_fork()
        return self._watches.next(watch)

    def unwatch(self, watch: Watch) -> None:
        self._watches.remove(watch)

    def _forget_after_fork(self) -> None:
        if self._process != os.getpid():
            # A forked child does not have the thread, and its parent's callers are not its own.
            self.__init__(self._database)

    def _start_or_stir(self) -> None:
        if self._thread is not None:
            self._stir()
            return
        self._closing = False
        self._answered_at = time.monotonic()  # assume that the database answers until it is silent
        woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(woken, self._wake), name="stepwell-waiter", daemon=True)
        self._thread.start()

    def wait_for(self, future: Future[T], timeout: float | None) -> T:
        """Wait for the end of a job, or its next state. Raises `TimeoutError` when that has not come in time, and
        `DatabaseTimeout` when the database has not answered for `call_timeout`."""
        began = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                return future.result(self._time_left(began, timeout))
            self._check_time(began, timeout)

    async def await_for(self, future: Future[T], timeout: float | None) -> T:
        running_loop()
        began = time.monotonic()
        ended = asyncio.wrap_future(future)
        try:
            while True:
                await asyncio.wait([ended], timeout=self._time_left(began, timeout))
                if ended.done():
                    return ended.result()
                self._check_time(began, timeout)
        finally:
            ended.cancel()

    def _time_left(self, began: float, timeout: float | None) -> float | None:
        left = min(began + (inf if timeout is None else timeout), self._silent_at(began)) - time.monotonic()
        return None if left == inf else max(left, 0.0)

    def _check_time(self, began: float, timeout: float | None) -> None:
        now = time.monotonic()
        if timeout is not None and now >= began + timeout:
            raise TimeoutError
        if now >= self._silent_at(began):
            raise DatabaseTimeout(
                f"{where(self._database.dsn)} has not answered for {describe(self._database.call_timeout or 0)} "
                "(App(call_timeout=...) sets this limit), so it is unknown whether the job has ended: wait for it "
                "again when the server answers"
            )

    def _silent_at(self, began: float) -> float:
        """Return when the database counts as silent for a caller that has waited since `began`. The poll asks it."""
        limit = self._database.call_timeout
        return inf if limit is None else max(began, self._answered_at) + max(limit, 2 * _POLL)

    def forget(self, job_id: str, future: Future[Ended]) -> None:
        with self._lock:
            left = [other for other in self._futures.get(job_id, []) if other is not future]
            if left:
                self._futures[job_id] = left
            else:
                self._futures.pop(job_id, None)
                self._unasked.discard(job_id)
                self._doubts.forget(job_id)

    def close(self) -> None:
        """Stop the thread. Callers that still wait get an error."""
        with self._lock:
            self._closing = True
            thread = self._thread
            self._stir()
        if thread is not None:
            thread.join(_PATIENCE)  # on a dead network the thread may hang; it is a daemon

    def _stir(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b"x")

    def _run(self, woken: int, wake: int) -> None:
        os.set_blocking(wake, False)
        try:
            while True:
                try:
                    with self._database.connect() as connection:
                        self._listen(connection, woken)
                        return
                except Exception as failed:
                    error = failed.__cause__ or failed
                    if not is_transient(error):
                        self._leave(failed)
                        return
                self._pause(woken, _POLL if is_read_only_error(error) else 0.2)
                if self._closing:
                    self._leave(_closed())
                    return
        finally:
            os.close(wake)
            os.close(woken)

    def _pause(self, woken: int, within: float) -> None:
        """Pause before the next connection, unless the app is closed. A further caller does not cut the pause short:
        many of them would have the thread connect without any."""
        until = time.monotonic() + within
        while not self._closing and (left := until - time.monotonic()) > 0:
            if _readable([woken], left):
                os.read(woken, 4096)

    def _leave(self, error: Exception) -> None:
        """Drop all futures under the lock, so that no caller begins to wait for a thread that is about to end."""
        with self._lock:
            futures = [future for waiting in self._futures.values() for future in waiting]
            self._futures.clear()
            self._unasked.clear()
            self._doubts.clear()
            self._watches.fail(error)
            self._thread = self._wake = None
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _listen(self, connection: psycopg.Connection[Any], woken: int) -> None:
        connection.execute("listen stepwell_done")
        has_lock = fetch(connection, queries.jobs.try_waiting_lock())[0]
        early = list(_EARLY_POLLS)
        idle_since = time.monotonic()
        poll_at = time.monotonic() + early.pop(0)
        self._look(connection, self._awaited())
        watch_at = time.monotonic()
        while True:
            if self._closing:
                self._leave(_closed())
                return
            with self._lock:
                if self._futures or self._watches:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > _LINGER:
                    self._thread = self._wake = None
                    return
                asked, self._unasked = list(self._unasked), set()
                unseen = self._watches.take_unasked()
            if asked:
                self._look(connection, asked)
            if unseen:
                self._look_at_watched(connection, unseen)
            if self._doubts:
                poll_at = min(poll_at, time.monotonic() + _DOUBT)
            if self._watches.doubtful:
                watch_at = min(watch_at, time.monotonic() + _DOUBT)
            # Notifications that came with the answers above are here, and do not make the connection readable.
            told = [job_id for note in connection.notifies(timeout=0) for job_id in note.payload.split(",")]
            if done := [job_id for job_id in told if job_id in self._futures]:
                self._look(connection, done)
            if changed := [job_id for job_id in told if job_id in self._watches]:
                self._look_at_watched(connection, changed)
            if not told:
                next_at = min(poll_at, watch_at) if self._watches else poll_at
                if woken in _readable([connection.fileno(), woken], next_at - time.monotonic()):
                    os.read(woken, 4096)
            if self._watches and time.monotonic() >= watch_at:
                watch_at = time.monotonic() + self._look_at_watched(connection)
            if time.monotonic() >= poll_at:
                poll_at = time.monotonic() + (early.pop(0) if early else _POLL)
                has_lock = has_lock or fetch(connection, queries.jobs.try_waiting_lock())[0]
                self._look(connection, self._awaited())
                if is_read_only_now(connection):
                    # No job ends on this server: most likely another server takes over.
                    raise psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")

    def _awaited(self) -> list[str]:
        with self._lock:
            return list(self._futures)

    def _look(self, connection: psycopg.Connection[Any], job_ids: list[str]) -> None:
        for start in range(0, len(job_ids), _AT_ONCE):
            found = fetch(connection, queries.jobs.results(job_ids[start : start + _AT_ONCE]))
            self._answered_at = time.monotonic()
            knows_all = not is_read_only_now(connection)
            for ended in found:
                # Nobody may wait for it any more.
                if ended.id not in self._futures:
                    continue
                if not self._doubts.is_certain(ended.id, found=ended.state is not None, knows_all=knows_all):
                    continue
                with self._lock:
                    futures = self._futures.pop(ended.id, [])
                    self._unasked.discard(ended.id)
                for future in futures:
                    if future.set_running_or_notify_cancel():
                        future.set_result(ended)

    def _look_at_watched(self, connection: psycopg.Connection[Any], job_ids: list[str] | None = None) -> float:
        """Look up watched jobs, by default all. Returns the seconds until the next look."""
        began = time.monotonic()
        marks = self._watches.marks(job_ids)
        for start in range(0, len(marks), _AT_ONCE):
            part = marks[start : start + _AT_ONCE]
            query = queries.jobs.job_changes([job_id for job_id, _ in part], [mark for _, mark in part])
            found = fetch(connection, query)
            self._answered_at = time.monotonic()
            self._watches.found(found, knows_all=not is_read_only_now(connection))
        return max(_WATCH, _WATCH_SHARE * (time.monotonic() - began))


def _readable(descriptors: list[int], within: float) -> set[int]:
    """Wait up to `within` seconds and return the readable descriptors. Not by select, which fails above 1024."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, within) * 1000)}


def _closed() -> Exception:
    return AppClosed("the app was closed while a caller waited for a result")
