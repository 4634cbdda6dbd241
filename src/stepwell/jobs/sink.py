"""Where tasks put their calls: each becomes a job in the database, and a handle to it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stepwell.errors import ConfigError, TooLarge
from stepwell.jobs.handle import JobHandle, refuse_in_event_loop
from stepwell.jobs.producer import Producer
from stepwell.jobs.task import Call, Task, of_item
from stepwell.jobs.waiter import Waiter
from stepwell.postgres.database import Database
from stepwell.postgres.queries import NewJob


class JobSink:
    """What all tasks of an app share."""

    def __init__(
        self,
        database: Database,
        waiter: Waiter,
        max_args_size: int,
        owner: str | None,
        misfit_grace: float,
        tasks: Mapping[str, Task[..., Any]],
    ) -> None:
        self.max_args_size = max_args_size
        self.owner = owner
        self.misfit_grace = misfit_grace
        self._database = database
        self._waiter = waiter
        self._producer = Producer(database)
        self._tasks = tasks

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
        return JobHandle(job_id, self._database, self._waiter, call.task.codec, encoder=self)

    def encode_args(self, task: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The args of a job of this task, as JSON."""
        return self._known(task).codec.encode_args(args, kwargs, self.max_args_size)

    def encode_input(self, task: str, step: str | None, value: Any) -> tuple[str, str]:
        """The name of a step of a chain, or of a state of a machine, and what it is given, as JSON."""
        flow: Any = self._known(task).flow
        if flow is None:
            raise ConfigError(f"{task!r} is neither a chain nor a machine: only a step of one is given an input")
        entered = flow.enter(step, value)
        return entered.name, entered.input

    def has_step(self, task: str, step: str) -> bool:
        """Whether the task is known to be a chain with this step, or a machine with this state."""
        known = self._tasks.get(task)
        flow: Any = None if known is None else known.flow
        return flow is not None and flow.find(step) is not None

    def _known(self, task: str) -> Task[..., Any]:
        known = self._tasks.get(task)
        if known is None:
            raise ConfigError(
                f"the job is of task {task!r}, which this app does not have, so nobody can tell whether the arguments "
                'fit: call this on the app that has it, or use "stepwell jobs edit" and "stepwell jobs retry"'
            )
        return known

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
