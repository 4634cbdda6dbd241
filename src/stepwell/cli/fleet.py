"""`stepwell pause`, `resume` and `stop`: control the fleet of workers."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli import known_names, parse
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import YesOption, ask, check_can_ask
from stepwell.cli.output import say
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.fleet import Target
from stepwell.postgres.queries.reads import WorkerInfo
from stepwell.telemetry.bus import counted
from stepwell.worker.claiming.patterns import fits

QueueArgument = Annotated[str | None, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
TaskOption = Annotated[str | None, typer.Option("--task", "-t", metavar="NAME", help="The task, in all queues.")]
WorkerOption = Annotated[
    str | None,
    typer.Option("--worker", "-w", metavar="ID", help="The worker; 'stepwell workers' lists them."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything: all queues, tasks and workers.")]

_SEE = ": 'stepwell workers' lists the queues and tasks of each"


def pause(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    database: DatabaseOption = None,
) -> None:
    """Pause a queue, a task, a worker, or everything.

    Workers claim no more of its jobs until it is resumed; running jobs finish. The pause takes effect within a second
    and also holds for workers that start later.
    """
    scope = _scope("pause", queue, task, worker, everything)
    with connect(database) as connection:
        fetch(connection, queries.fleet.pause(scope))
        say(f"{_name(scope)} is paused")
        known_names.warn_of(connection, _typed(scope))


def resume(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    database: DatabaseOption = None,
) -> None:
    """Resume a paused queue, task or worker, or everything.

    Each pause is resumed on its own: resuming a queue does not end a pause of everything.
    """
    scope = _scope("resume", queue, task, worker, everything)
    with connect(database) as connection:
        was_paused = fetch(connection, queries.fleet.resume(scope))[0]
        left = fetch(connection, queries.fleet.pauses())
        say(f"{_name(scope)} is {'resumed' if was_paused else 'not paused'}")
        if left:
            say(f"still paused: {', '.join(f'{p.scope} {p.name}'.rstrip() for p in left)}")
        if not was_paused:
            known_names.refuse(connection, _typed(scope))


def stop(
    queue: QueueArgument = None,
    task: TaskOption = None,
    worker: WorkerOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Stop workers, once their running jobs have finished.

    This stops those that claim from a queue, those that have a task, one worker, or all. Workers that start later are
    not affected. Asks for confirmation, except for a single worker.
    """
    scope = _scope("stop", queue, task, worker, everything)
    with connect(database) as connection:
        concerned = _concerned(connection, scope) if scope.worker is None else 0
        if scope.worker is None:
            check_can_ask("stop", yes=yes)
        if concerned and not yes:
            ask(f"stop {counted(concerned, 'worker')}?")
        asked = fetch(connection, queries.fleet.stop(scope))[0]
    say(f"asked {counted(asked, 'worker')} to stop")


def _scope(verb: str, queue: str | None, task: str | None, worker: str | None, everything: bool) -> Target:
    given = [
        name
        for name, value in (("QUEUE", queue), ("--task", task), ("--worker", worker), ("--all", everything))
        if value
    ]
    if len(given) != 1:
        said = f"{verb} takes one of" if given else f"{verb} what? Give"
        raise parse.UsageError(
            f"{said} QUEUE, --task NAME, --worker ID or --all" + (f", not {' and '.join(given)}" if given else "")
        )
    return Target(
        None if queue is None else parse.name(queue, "QUEUE"),
        None if task is None else parse.name(task, "--task"),
        None if worker is None else parse.worker_id(worker),
        everything,
    )


def _typed(scope: Target) -> known_names.Typed:
    return {"queue": scope.queue, "task": scope.task}


def _concerned(connection: psycopg.Connection[Any], scope: Target) -> int:
    """How many live workers claim from the queue, or have the task. Raises if there is none."""
    alive = [worker for worker in fetch(connection, queries.reads.workers()) if worker.alive]
    if scope.everything:
        return len(alive)
    if count := sum(_has(worker, scope) for worker in alive):
        return count
    if scope.queue is not None:
        near = known_names.nearest(scope.queue, {name for worker in alive for name in worker.queues})
        raise StepwellError(f"no live worker claims from queue {scope.queue!r}{near or _SEE}")
    near = known_names.nearest(scope.task or "", {name for worker in alive for name in worker.tasks})
    raise StepwellError(f"no live worker has task {scope.task!r}{near or _SEE}")


def _has(worker: WorkerInfo, scope: Target) -> bool:
    if scope.queue is None:
        return scope.task in worker.tasks
    return any(fits(scope.queue, name) for name in worker.queues)


def _name(scope: Target) -> str:
    for kind in ("queue", "task", "worker"):
        if getattr(scope, kind) is not None:
            return f"{kind} {getattr(scope, kind)}"
    return "everything"
