"""The part of the context that every handler has, durable or not."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from stepwell.durable.run_state import RunState
from stepwell.errors import BadValue, ConfigError
from stepwell.resources.opened import resource

T = TypeVar("T")

if TYPE_CHECKING:
    import psycopg

    # Not a dependency: without it, these types are unknown, and so are the properties that have them.
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any]
    Connection: TypeAlias = psycopg.Connection[Any]
else:
    # Psycopg takes long to import: a program that only defines tasks starts without it.
    AsyncSession = Session = AsyncConnection = Connection = Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobContext:
    """The common part of `Context` and `SyncContext`."""

    __slots__ = ("_run",)

    def __init__(self, run: RunState) -> None:
        self._run = run

    @property
    def id(self) -> str:
        """The job's id."""
        return self._run.job.id

    @property
    def task(self) -> str:
        """The task's name."""
        return self._run.job.task

    @property
    def queue(self) -> str:
        """The queue the job came from."""
        return self._run.job.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. A durable job counts from the last step saved before this run."""
        return self._run.attempt

    @property
    def epoch(self) -> int:
        """How often the job was claimed. With the id, it is the fence for writes of your own."""
        return self._run.job.epoch

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of the schedule that this run is for, or None if no schedule enqueued the job or the job that it was
        forked from."""
        at = self._run.job.scheduled_for
        return None if at is None else _EPOCH + timedelta(microseconds=at)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the enqueuer attached to the job."""
        metadata = self._run.job.metadata
        try:
            return {} if metadata is None else msgspec.json.decode(metadata)
        except RecursionError:
            raise BadValue(f"the metadata of job {self.id} ({self.task}) is nested too deep") from None

    @property
    def deadline(self) -> datetime | None:
        """When the timeout will ask this run to stop, by this machine's clock, or None without a timeout."""
        deadline = self._run.deadline
        return None if deadline is None else datetime.fromtimestamp(deadline, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop: by cancel, timeout, shutdown or a lost lease.

        A coroutine is also cancelled. A plain function runs on in its thread, and has to look here. A run that returns
        after it has seen True does not count as a success.
        """
        run = self._run
        run.saw_cancelled = run.saw_cancelled or run.stop_asked
        return run.stop_asked

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """For plain functions: sleep until asked to stop, or for `timeout` seconds. Returns `cancelled`."""
        self._run.wait_until_asked_to_stop(timeout)
        return self.cancelled

    @property
    def connection(self) -> AsyncConnection:
        """The connection of a `transaction=True` task: its statements commit with the job, or not at all."""
        return self._transaction("connection", "transaction=True", "async def")

    @property
    def sync_connection(self) -> Connection:
        """The same as `connection`, for a `transaction=True` task that is a plain function."""
        return self._transaction("sync_connection", "transaction=True", "def")

    @property
    def session(self) -> AsyncSession:
        """The session of a task with `transaction=` an async_sessionmaker of SQLAlchemy: it commits with the job, or
        not at all."""
        return self._transaction("session", "transaction=async_sessionmaker(...)", "async def")

    @property
    def sync_session(self) -> Session:
        """The same as `session`, for a plain function, with `transaction=` a sessionmaker."""
        return self._transaction("sync_session", "transaction=sessionmaker(...)", "def")

    def _transaction(self, name: str, option: str, kind: str) -> Any:
        """What a transactional task runs in. Raises `ConfigError` if the property of this name does not return it."""
        found = _property_of(self._run.transaction)
        if found != name:
            has = "is not one" if found is None else f"has ctx.{found}"
            raise ConfigError(
                f"ctx.{name} is for tasks declared as @app.task({option}) on '{kind}': {self.task!r} {has}"
            )
        return self._run.transaction

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the job in every record."""
        logger = logging.getLogger(f"stepwell.task.{self.task}")
        return logging.LoggerAdapter(
            logger, {"job_id": self.id, "task": self.task, "queue": self.queue, "attempt": self.attempt}
        )

    def resource(self, kind: type[T]) -> T:
        """The resource of this type that the worker has opened: see `App.resource`."""
        return resource(kind, self.task)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far this run is. Returns at once. Reports that come too often are thinned out, but the last one is
        kept, with the first 200 characters of its message."""
        said = {"done": done, "total": total, "message": message and message[:200]}
        text = msgspec.json.encode({key: value for key, value in said.items() if value is not None}).decode()
        self._run.report(self._run.job, text)


def run_of(ctx: JobContext) -> RunState:
    """The run behind a context, for the worker and the executor."""
    return ctx._run  # pyright: ignore[reportPrivateUsage]


def _property_of(transaction: Any) -> str | None:
    """The property of a context that returns this connection or session; None: there is none."""
    if transaction is None:
        return None
    import psycopg  # loaded by now

    if isinstance(transaction, psycopg.AsyncConnection):
        return "connection"
    if isinstance(transaction, psycopg.Connection):
        return "sync_connection"
    return "session" if hasattr(transaction, "sync_session") else "sync_session"
