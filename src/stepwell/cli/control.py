"""`stepwell pause`, `resume` and `stop`: what the fleet is told."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell import queries
from stepwell.cli import usage
from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption, session
from stepwell.db import fetch
from stepwell.queries import Scope, WorkerInfo

QueueArgument = Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name.", show_default=False)]
TaskOption = Annotated[str | None, typer.Option("--task", "-t", metavar="NAME", help="Of this task.")]
WorkerOption = Annotated[
    str | None,
    typer.Option("--worker", "-w", metavar="ID", help="This worker, by the id that 'stepwell workers' shows."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything.")]


def pause(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    database: DatabaseOption = None,
) -> None:
    """Claim nothing more of a queue, a task, by a worker, or at all, until it is resumed; what runs goes on.

    Workers obey within a second, and those that start later do too.
    """
    scope = _scope("pause", queue, task, worker, everything)
    with session(database) as connection:
        fetch(connection, queries.pause(scope))
        known = _is_known(connection, scope)
    say(f"{_name(scope)} is paused" + ("" if known else f", but {_unknown(scope)}: is the name right?"))


def resume(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    database: DatabaseOption = None,
) -> None:
    """End a pause: exactly the one that is named."""
    scope = _scope("resume", queue, task, worker, everything)
    with session(database) as connection:
        was_paused = fetch(connection, queries.resume(scope))[0]
        left = fetch(connection, queries.pauses())
    say(f"{_name(scope)} is {'resumed' if was_paused else 'not paused'}")
    if left:
        say(f"still paused: {', '.join(f'{p.scope} {p.name}'.rstrip() for p in left)}")


def stop(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    database: DatabaseOption = None,
) -> None:
    """Ask workers to finish what they run and stop: those that claim from a queue, know a task, one, or all.

    Those that start later are not meant.
    """
    scope = _scope("stop", queue, task, worker, everything)
    with session(database) as connection:
        asked = fetch(connection, queries.stop(scope))[0]
    if asked:
        say(f"asked {'1 worker' if asked == 1 else f'{asked} workers'} to stop")
    else:
        say(f"no live worker is concerned by {_name(scope)}: 'stepwell workers' shows them all")


def _scope(verb: str, queue: str | None, task: str | None, worker: str | None, everything: bool) -> Scope:
    given = [
        name
        for name, value in (("QUEUE", queue), ("--task", task), ("--worker", worker), ("--all", everything))
        if value
    ]
    if len(given) != 1:
        said = f"{verb} takes one of" if given else f"what shall {verb}? Give"
        raise usage.Usage(
            f"{said} QUEUE, --task NAME, --worker ID or --all" + (f", not {' and '.join(given)}" if given else "")
        )
    return Scope(
        None if queue is None else usage.name(queue, "QUEUE"),
        None if task is None else usage.name(task, "--task"),
        None if worker is None else usage.worker_id(worker),
        everything,
    )


def _is_known(connection: psycopg.Connection[Any], scope: Scope) -> bool:
    """Whether a worker or a live job has the name of the queue, or a worker that of the task."""
    if scope.queue is None and scope.task is None:
        return True
    if any(_has(worker, scope) for worker in fetch(connection, queries.workers())):
        return True
    return scope.queue is not None and any(
        queue.ready + queue.scheduled + queue.running + queue.waiting + queue.blocked
        for queue in fetch(connection, queries.queues())
        if queue.name == scope.queue
    )


def _has(worker: WorkerInfo, scope: Scope) -> bool:
    if scope.queue is None:
        return scope.task in worker.tasks
    return any(
        scope.queue == name or (name.endswith("*") and scope.queue.startswith(name[:-1])) for name in worker.queues
    )


def _unknown(scope: Scope) -> str:
    if scope.queue is None:
        return "no worker knows a task of that name"
    return "no worker claims from a queue of that name, and no live job is in one"


def _name(scope: Scope) -> str:
    for kind in ("queue", "task", "worker"):
        if getattr(scope, kind) is not None:
            return f"{kind} {getattr(scope, kind)}"
    return "everything"
