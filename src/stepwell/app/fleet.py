"""The calls of `App` that control the fleet: pause, resume and stop, for every worker on the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from stepwell.errors import ConfigError
from stepwell.jobs.filter import check_worker
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.query_plan import rows_of, run_call
from stepwell.values.bounds import check_name

if TYPE_CHECKING:
    from stepwell.postgres.queries.fleet import Target

OneTask: TypeAlias = str | Task[..., Any] | None
OneWorker: TypeAlias = UUID | str | None


class FleetControl:
    """The part of `App` that controls the fleet."""

    database: Database

    def pause(
        self, queue: str | None = None, *, task: OneTask = None, worker: OneWorker = None, everything: bool = False
    ) -> None:
        """Claim no more jobs from a queue, of a task, by a worker, or at all, until it is resumed. The pause holds in
        the whole database, for every app. Running jobs continue. Workers obey within a second, and so do workers that
        start later."""
        query = queries.fleet.pause(to_target("pause", queue, task, worker, everything))
        run_call("pause", rows_of(query), self.database)

    async def apause(
        self, queue: str | None = None, *, task: OneTask = None, worker: OneWorker = None, everything: bool = False
    ) -> None:
        """The same as `pause`, for async code."""
        await self.database.afetch(queries.fleet.pause(to_target("apause", queue, task, worker, everything)))

    def resume(
        self, queue: str | None = None, *, task: OneTask = None, worker: OneWorker = None, everything: bool = False
    ) -> bool:
        """End exactly the pause of this target: a queue that was paused by itself stays paused when everything is
        resumed. False: the target was not paused."""
        query = queries.fleet.resume(to_target("resume", queue, task, worker, everything))
        return run_call("resume", rows_of(query), self.database)[0]

    async def aresume(
        self, queue: str | None = None, *, task: OneTask = None, worker: OneWorker = None, everything: bool = False
    ) -> bool:
        """The same as `resume`, for async code."""
        query = queries.fleet.resume(to_target("aresume", queue, task, worker, everything))
        return (await self.database.afetch(query))[0]

    def stop(
        self, queue: str | None = None, *, task: OneTask = None, worker: OneWorker = None, everything: bool = False
    ) -> int:
        """Ask workers of every app to drain and stop: those that claim from a queue, those that know a task, one
        worker, or all. Workers that start later are not affected. Returns how many were asked."""
        query = queries.fleet.stop(to_target("stop", queue, task, worker, everything))
        return run_call("stop", rows_of(query), self.database)[0]

    async def astop(
        self, queue: str | None = None, *, task: OneTask = None, worker: OneWorker = None, everything: bool = False
    ) -> int:
        """The same as `stop`, for async code."""
        query = queries.fleet.stop(to_target("astop", queue, task, worker, everything))
        return (await self.database.afetch(query))[0]


def to_target(verb: str, queue: str | None, task: OneTask, worker: OneWorker, everything: bool) -> Target:
    """Return the one target that is given. Raises `ConfigError` if there is none, or more than one."""
    if not isinstance(everything, bool):
        raise ConfigError(f"everything is {everything!r}: it must be True or False")
    values = {"a queue": queue, "task=": task, "worker=": worker, "everything=": everything or None}
    given = [name for name, value in values.items() if value is not None]
    if len(given) != 1:
        raise ConfigError(
            f"{verb} was given {' and '.join(given) or 'nothing'}: give a queue, task=, worker= or everything=True, "
            f'such as {verb}("mail")'
        )
    return queries.fleet.Target(
        None if queue is None else check_name(queue, "queue"),
        None if task is None else check_name(task.name if isinstance(task, Task) else task, "task"),
        None if worker is None else check_worker(worker),
        everything,
    )
