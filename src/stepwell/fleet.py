"""What can be asked of the fleet: whom it is for, and what is asked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stepwell.errors import ConfigError
from stepwell.jobs.filter import check_worker
from stepwell.jobs.task import Task
from stepwell.postgres.queries import Scope
from stepwell.values.names import check_name


def to_scope(
    verb: str, queue: str | None, task: str | Task[..., Any] | None, worker: UUID | str | None, everything: bool
) -> Scope:
    """The one that is given. Raises `ConfigError` if it is none, or more than one."""
    if not isinstance(everything, bool):
        raise ConfigError(f"everything is {everything!r}: it must be True or False")
    given = [name for name, value in _named(queue, task, worker, everything) if value not in (None, False)]
    if len(given) != 1:
        said = "nothing" if not given else " and ".join(given)
        raise ConfigError(
            f'{verb} was given {said}: give a queue, task=, worker= or everything=True, such as {verb}("mail")'
        )
    return Scope(
        None if queue is None else check_name(queue, "queue"),
        None if task is None else check_name(task.name if isinstance(task, Task) else task, "task"),
        None if worker is None else check_worker(worker),
        everything,
    )


def _named(*values: object) -> zip[tuple[str, object]]:
    return zip(("a queue", "task=", "worker=", "everything="), values, strict=True)
