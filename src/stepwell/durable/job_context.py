"""What every handler may ask of its job, durable or not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg

from stepwell.durable.effects import Store
from stepwell.durable.journal import Drift, Journal
from stepwell.durable.unawaited import Made
from stepwell.errors import BadValue, ConfigError
from stepwell.values.job import ClaimedJob

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Durability:
    """Where a worker keeps steps, and how it minds them."""

    store: Callable[[ClaimedJob], Store]
    drift: Drift = "warn"
    always_replay: bool = False


class JobContext:
    """What `Context` and `SyncContext` have in common."""

    __slots__ = (
        "_attempt",
        "_connection",
        "_deadline",
        "_durability",
        "_job",
        "_journal",
        "_kept_in",
        "_made",
        "_report",
        "_stop_asked",
        "_stop_event",
        "saw_cancelled",
    )

    def __init__(
        self,
        job: ClaimedJob,
        timeout: float | None,
        report: Callable[[ClaimedJob, str], None],
        durability: Durability | None = None,
    ) -> None:
        # One is made for every job, so it copies nothing.
        self._job = job
        self._deadline = None if timeout is None else time.time() + timeout
        self._report = report
        self._durability = durability
        self._journal: Journal | None = None
        self._kept_in: Store | None = None
        self._made: Made | None = None
        self._attempt = job.attempt
        self._connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None = None
        self._stop_asked = False
        self._stop_event: threading.Event | None = None
        self.saw_cancelled = False
        """Whether the handler has learnt by `cancelled` that it was asked to stop."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def task(self) -> str:
        """The task's name."""
        return self._job.task

    @property
    def queue(self) -> str:
        """The queue the job came from."""
        return self._job.queue

    @property
    def attempt(self) -> int:
        """Which counted try this is, from 1. A durable job counts from the last step saved before this run."""
        if self._job.journal is None or self._durability is None or self._connection is not None:
            return self._attempt
        try:
            return self.journal.first_attempt
        except BadValue:  # whoever comes to a step is told
            return self._attempt

    @property
    def epoch(self) -> int:
        """How often the job was claimed: with the id, the fence for writes of your own."""
        return self._job.epoch

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of the schedule that this run is for; None: no schedule enqueued it."""
        at = self._job.scheduled_for
        return None if at is None else _EPOCH + timedelta(microseconds=at)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the enqueuer attached to the job."""
        try:
            return {} if self._job.metadata is None else msgspec.json.decode(self._job.metadata)
        except RecursionError:
            raise BadValue(f"the metadata of job {self.id} ({self.task}) is nested too deep") from None

    @property
    def deadline(self) -> datetime | None:
        """When the timeout will ask this run to stop, by this machine's clock; None: it has no timeout."""
        return None if self._deadline is None else datetime.fromtimestamp(self._deadline, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop: by cancel, timeout, shutdown or a lost lease.

        A coroutine is cancelled besides. A plain function runs on in its thread and must look here. What it returns
        once it has seen True is not taken for a success.
        """
        self.saw_cancelled = self.saw_cancelled or self._stop_asked
        return self._stop_asked

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """For plain functions: sleep until asked to stop, or for `timeout` seconds. Returns `cancelled`."""
        # The event is made before the flag is read, and the flag set before the event: neither can be missed.
        if self._stop_event is None:
            self._stop_event = threading.Event()
        if not self._stop_asked:
            self._stop_event.wait(timeout)
        return self.cancelled

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection of a `transaction=True` task: what is done on it commits with the job, or not at all."""
        if not isinstance(self._connection, psycopg.AsyncConnection):
            raise ConfigError(self._no_connection("connection", "async def"))
        return self._connection

    @property
    def sync_connection(self) -> psycopg.Connection[Any]:
        """The same as `connection`, for a `transaction=True` task that is a plain function."""
        if not isinstance(self._connection, psycopg.Connection):
            raise ConfigError(self._no_connection("sync_connection", "def"))
        return self._connection

    def _no_connection(self, name: str, kind: str) -> str:
        return f"ctx.{name} is for tasks declared as @app.task(transaction=True) on '{kind}': {self.task!r} is not one"

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the job in every record."""
        logger = logging.getLogger(f"stepwell.task.{self.task}")
        return logging.LoggerAdapter(
            logger, {"job_id": self.id, "task": self.task, "queue": self.queue, "attempt": self.attempt}
        )

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far this run is. Returns at once; what is said too often is thinned out, the last word is kept; of a
        message the first 200 characters."""
        said = {"done": done, "total": total, "message": message and message[:200]}
        text = msgspec.json.encode({key: value for key, value in said.items() if value is not None}).decode()
        self._report(self._job, text)

    # What follows is for the worker.

    def ask_to_stop(self) -> None:
        """Make `cancelled` true."""
        self._stop_asked = True
        if self._stop_event is not None:
            self._stop_event.set()

    @property
    def journal(self) -> Journal:
        """What this run remembers of the job's steps."""
        if self._journal is None:
            durability = self._durability
            if self._connection is not None:
                raise ConfigError(
                    f"task {self.task!r} has transaction=True: it is one transaction, and would be rolled back at each "
                    "wait; for steps and waits leave that out, and use ctx.transaction"
                )
            if durability is None:
                raise ConfigError(
                    f"task {self.task!r} has no steps here: they are for functions that a worker runs, not for "
                    "process=True, chains and machines"
                )
            self._journal = Journal(self._job, durability.drift, always_replay=durability.always_replay)
        return self._journal

    def share(self, journal: Journal) -> None:
        """Remember with another context of the same run."""
        self._journal = journal

    @property
    def counted_attempt(self) -> int:
        """`attempt`, as it counts should this run fail now: what it has saved itself is progress, too."""
        return self.attempt if self._journal is None else self._journal.attempt

    @property
    def took_steps(self) -> bool:
        """Whether this run has come to a step."""
        return self._journal is not None

    @property
    def store(self) -> Store:
        """Where this run keeps its steps."""
        if self._kept_in is None:
            self.journal  # noqa: B018 it says so if there are no steps here
            assert self._durability is not None
            self._kept_in = self._durability.store(self._job)
        return self._kept_in

    @property
    def made(self) -> Made:
        """What this run has made, to be awaited."""
        if self._made is None:
            self._made = Made()
        return self._made

    @property
    def left_open(self) -> bool:
        """Whether a step or a wait that this run has made has not ended."""
        return self._made is not None and self._made.any_open

    def refuse_unused(self) -> None:
        """Raise `NotAwaited` if this run has made a step or a wait and never awaited it."""
        if self._made is not None:
            self._made.refuse_unused(self.task)

    def refuse_open(self) -> None:
        """Raise `NotAwaited` if this run has begun a step or a wait that has not ended."""
        if self._made is not None:
            self._made.refuse_open(self.task)

    def let_go(self) -> None:
        """The run is over."""
        if self._made is not None:
            self._made.close()

    def begin_step(self, attempt: int) -> None:
        """A step of a chain begins, which counts its attempts by itself."""
        self._attempt = attempt

    def lend(self, connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None) -> None:
        """Make `connection` (or `sync_connection`) this one; None takes it back."""
        self._connection = connection
