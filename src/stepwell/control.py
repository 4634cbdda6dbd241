"""What can be asked of the fleet: whom it is for, and what is asked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stepwell import queries
from stepwell.errors import ConfigError
from stepwell.names import check_name
from stepwell.plan import Plan
from stepwell.queries import JobFilter, Scope
from stepwell.task import Task

_BATCH = 1000


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
        None if worker is None else _check_worker(worker),
        everything,
    )


def cancel_matching(scope: Scope, reason: str | None) -> Plan[int]:
    """Cancel every live job of a queue or a task, that a worker runs, or all; returns how many.

    From the newest to the oldest, so none is met twice; what is enqueued meanwhile stays.
    """
    which = JobFilter(
        states=("scheduled", "ready", "running", "waiting", "blocked"),
        queue=scope.queue,
        task=scope.task,
        worker_id=scope.worker,
    )
    before: str | None = None
    cancelled = 0
    while batch := (yield queries.job_ids(which, before, _BATCH)):
        cancelled += len((yield queries.cancel(batch, reason)))
        before = batch[-1]
    return cancelled


def _named(*values: object) -> zip[tuple[str, object]]:
    return zip(("a queue", "task=", "worker=", "everything="), values, strict=True)


def _check_worker(worker: UUID | str) -> UUID:
    try:
        return worker if isinstance(worker, UUID) else UUID(worker)
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"worker is {worker!r}: give its id, as 'stepwell workers' shows it") from None
