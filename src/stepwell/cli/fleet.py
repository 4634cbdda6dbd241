"""`stepwell pause`, `resume` and `stop`: control the fleet of workers."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli import known_names, parse
from stepwell.cli.completion import complete_queue, complete_task, complete_worker
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

QueueArgument = Annotated[
    str | None, typer.Argument(autocompletion=complete_queue, metavar="QUEUE", help="The queue.", show_default=False)
]
TaskOption = Annotated[
    str | None,
    typer.Option("--task", "-t", autocompletion=complete_task, metavar="NAME", help="The task, in all queues."),
]
WorkerOption = Annotated[
    str | None,
    typer.Option(
        "--worker",
        "-w",
        autocompletion=complete_worker,
        metavar="ID",
        help="The worker; 'stepwell workers' lists them.",
    ),
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
    target = _target("pause", queue, task, worker, everything)
    with connect(database) as connection:
        fetch(connection, queries.fleet.pause(target))
        say(f"{_name(target)} is paused")
        known_names.warn_of(connection, _typed(target))


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
    target = _target("resume", queue, task, worker, everything)
    with connect(database) as connection:
        was_paused = fetch(connection, queries.fleet.resume(target))[0]
        left = fetch(connection, queries.fleet.pauses())
        say(f"{_name(target)} is {'resumed' if was_paused else 'not paused'}")
        if left:
            say(f"still paused: {', '.join(f'{p.scope} {p.name}'.rstrip() for p in left)}")
        if not was_paused:
            known_names.refuse(connection, _typed(target))


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
    target = _target("stop", queue, task, worker, everything)
    with connect(database) as connection:
        concerned = _concerned(connection, target) if target.worker is None else 0
        if target.worker is None:
            check_can_ask("stop", yes=yes)
        if concerned and not yes:
            ask(f"stop {counted(concerned, 'worker')}?")
        asked = fetch(connection, queries.fleet.stop(target))[0]
    say(f"asked {counted(asked, 'worker')} to stop")


def _target(verb: str, queue: str | None, task: str | None, worker: str | None, everything: bool) -> Target:
    values = {"QUEUE": queue, "--task": task, "--worker": worker, "--all": everything}
    given = [name for name, value in values.items() if value]
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


def _typed(target: Target) -> known_names.Typed:
    return {"queue": target.queue, "task": target.task}


def _concerned(connection: psycopg.Connection[Any], target: Target) -> int:
    """How many live workers claim from the queue, or have the task. Raises if there is none."""
    alive = [worker for worker in fetch(connection, queries.reads.workers()) if worker.alive]
    if target.everything:
        return len(alive)
    if count := sum(_has(worker, target) for worker in alive):
        return count
    if target.queue is not None:
        near = known_names.nearest(target.queue, {name for worker in alive for name in worker.queues})
        raise StepwellError(f"no live worker claims from queue {target.queue!r}{near or _SEE}")
    near = known_names.nearest(target.task or "", {name for worker in alive for name in worker.tasks})
    raise StepwellError(f"no live worker has task {target.task!r}{near or _SEE}")


def _has(worker: WorkerInfo, target: Target) -> bool:
    if target.queue is None:
        return target.task in worker.tasks
    return any(fits(target.queue, name) for name in worker.queues)


def _name(target: Target) -> str:
    for kind in ("queue", "task", "worker"):
        if getattr(target, kind) is not None:
            return f"{kind} {getattr(target, kind)}"
    return "everything"
