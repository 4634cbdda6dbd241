"""Where tasks put their calls: each becomes a job in the database, and a handle to it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from stepwell.db import Database
from stepwell.errors import TooLarge
from stepwell.handle import JobHandle, refuse_in_event_loop
from stepwell.producer import Producer
from stepwell.queries import NewJob
from stepwell.task import Call, of_item
from stepwell.waiter import Waiter


class JobSink:
    """What all tasks of an app share."""

    def __init__(
        self, database: Database, waiter: Waiter, max_args_size: int, owner: str | None, misfit_grace: float
    ) -> None:
        self.max_args_size = max_args_size
        self.owner = owner
        self.misfit_grace = misfit_grace
        self._database = database
        self._waiter = waiter
        self._producer = Producer(database)

    def put(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        """Put one call in."""
        refuse_in_event_loop("enqueue", "aenqueue")
        return self._handle(self._producer.put(call.job, connection), call)

    async def aput(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        """The same as `put`, for async code."""
        return self._handle(await self._producer.aput(call.job, connection), call)

    def put_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """Put many calls in, all or none. They are made as they are sent."""
        refuse_in_event_loop("enqueue_many", "aenqueue_many")
        made: list[Call[Any]] = []
        with _naming_the_item(made):
            return self._handles(self._producer.put_many(_jobs(calls, made), connection), made)

    async def aput_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """The same as `put_many`, for async code."""
        made: list[Call[Any]] = []
        with _naming_the_item(made):
            return self._handles(await self._producer.aput_many(_jobs(calls, made), connection), made)

    def _handle(self, job_id: str, call: Call[Any]) -> JobHandle[Any]:
        return JobHandle(job_id, self._database, self._waiter, call.task.codec)

    def _handles(self, ids: list[str], calls: list[Call[Any]]) -> list[JobHandle[Any]]:
        return [self._handle(job_id, call) for job_id, call in zip(ids, calls, strict=True)]


@contextmanager
def _naming_the_item(calls: list[Call[Any]]) -> Generator[None]:
    """Within this, the error of a value that the database finds too large says which item has it. Postgres names its
    size, which is enough to find it by: of the chunks that are on their way it does not say which one is meant."""
    try:
        yield
    except TooLarge as error:
        said = str(error)
        for index, call in enumerate(calls):
            for name, text in (("args", call.job.args), ("metadata", call.job.metadata or "")):
                if f"{name} of {len(text.encode())} bytes" in said:
                    raise of_item(index, error) from error
        raise


def _jobs(calls: Iterable[Call[Any]], made: list[Call[Any]]) -> Iterator[NewJob]:
    for call in calls:
        made.append(call)
        yield call.job
