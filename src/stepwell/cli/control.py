"""`stepwell pause`, `resume` and `stop`: what the fleet is told."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli import names, usage
from stepwell.cli.confirm import YesOption, ask, check_can_ask
from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption, session
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.fleet import Target
from stepwell.postgres.queries.reads import WorkerInfo
from stepwell.worker.claiming.patterns import fits

QueueArgument = Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name.", show_default=False)]
TaskOption = Annotated[str | None, typer.Option("--task", "-t", metavar="NAME", help="Of this task.")]
WorkerOption = Annotated[
    str | None,
    typer.Option("--worker", "-w", metavar="ID", help="This worker, by the id that 'stepwell workers' shows."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything.")]

_SEE = ": 'stepwell workers' shows the queues and tasks of each"


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
        fetch(connection, queries.fleet.pause(scope))
        say(f"{_name(scope)} is paused")
        names.warn_of(connection, _typed(scope))


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
        was_paused = fetch(connection, queries.fleet.resume(scope))[0]
        left = fetch(connection, queries.fleet.pauses())
        say(f"{_name(scope)} is {'resumed' if was_paused else 'not paused'}")
        if left:
            say(f"still paused: {', '.join(f'{p.scope} {p.name}'.rstrip() for p in left)}")
        if not was_paused:
            names.refuse(connection, _typed(scope))


def stop(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Ask workers to finish what they run and stop: those that claim from a queue, know a task, one, or all.

    Those that start later are not meant. Asks first, unless it is one worker that is named.
    """
    scope = _scope("stop", queue, task, worker, everything)
    with session(database) as connection:
        concerned = _concerned(connection, scope) if scope.worker is None else 0
        if scope.worker is None:
            check_can_ask("stop", yes=yes)
        if concerned and not yes:
            ask(f"stop {_workers(concerned)}?")
        asked = fetch(connection, queries.fleet.stop(scope))[0]
    say(f"asked {_workers(asked)} to stop")


def _scope(verb: str, queue: str | None, task: str | None, worker: str | None, everything: bool) -> Target:
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
    return Target(
        None if queue is None else usage.name(queue, "QUEUE"),
        None if task is None else usage.name(task, "--task"),
        None if worker is None else usage.worker_id(worker),
        everything,
    )


def _typed(scope: Target) -> names.Typed:
    return {"queue": scope.queue, "task": scope.task}


def _concerned(connection: psycopg.Connection[Any], scope: Target) -> int:
    """How many live workers claim from the queue, or know the task. Raises if there is none."""
    alive = [worker for worker in fetch(connection, queries.reads.workers()) if worker.alive]
    if scope.everything:
        return len(alive)
    if count := sum(_has(worker, scope) for worker in alive):
        return count
    if scope.queue is not None:
        near = names.nearest(scope.queue, {name for worker in alive for name in worker.queues})
        raise StepwellError(f"no live worker claims from queue {scope.queue!r}{near or _SEE}")
    near = names.nearest(scope.task or "", {name for worker in alive for name in worker.tasks})
    raise StepwellError(f"no live worker knows task {scope.task!r}{near or _SEE}")


def _has(worker: WorkerInfo, scope: Target) -> bool:
    if scope.queue is None:
        return scope.task in worker.tasks
    return any(fits(scope.queue, name) for name in worker.queues)


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _name(scope: Target) -> str:
    for kind in ("queue", "task", "worker"):
        if getattr(scope, kind) is not None:
            return f"{kind} {getattr(scope, kind)}"
    return "everything"
