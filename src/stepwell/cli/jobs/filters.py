"""The options that choose jobs to list, count, retry, cancel, run, delete or move. They are named like the filters in
Python."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from stepwell.cli import parse
from stepwell.cli.completion import complete_queue, complete_state, complete_task, complete_worker
from stepwell.jobs.filter import JobFilters, to_match
from stepwell.postgres.queries.search import JobMatch

StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        autocompletion=complete_state,
        metavar="STATE",
        help="Only jobs in this state. Repeatable.",
        show_default=False,
    ),
]
QueueOption = Annotated[
    str | None,
    typer.Option("--queue", "-q", autocompletion=complete_queue, metavar="NAME", help="Only jobs in this queue."),
]
TaskOption = Annotated[
    str | None,
    typer.Option("--task", "-t", autocompletion=complete_task, metavar="NAME", help="Only jobs of this task."),
]
OlderOption = Annotated[
    str | None,
    typer.Option("--older-than", metavar="DURATION", help="Only jobs enqueued longer ago than this: 30s, 1h30m, 7d."),
]
NewerOption = Annotated[
    str | None, typer.Option("--newer-than", metavar="DURATION", help="Only jobs enqueued within this time.")
]
MetadataOption = Annotated[
    str | None, typer.Option("--metadata", "-m", metavar="JSON", help="Only jobs whose metadata contains this object.")
]
OwnerOption = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Only jobs of the app of this name.")]
WorkerOption = Annotated[
    str | None,
    typer.Option(
        "--worker",
        "-w",
        autocompletion=complete_worker,
        metavar="ID",
        help="Only jobs that this worker runs or was last to run.",
    ),
]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="ID", help="Only members of this group.")]
FailureOption = Annotated[
    str | None,
    typer.Option("--failure", metavar="ID", help="Only jobs that failed like this last; see 'stepwell failures'."),
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only jobs with this text in their error, in any case.")
]


def job_match(
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    owner: OwnerOption = None,
    worker: WorkerOption = None,
    error: ErrorOption = None,
    group: GroupOption = None,
    failure: FailureOption = None,
) -> JobMatch:
    filters: JobFilters = {
        "state": cast("Any", state or None),
        "queue": queue,
        "task": task,
        "older_than": older_than,
        "newer_than": newer_than,
        "metadata": None if metadata is None else parse.json_object(metadata, "--metadata"),
        "owner": owner,
        "worker": worker,
        "error": error,
        "group": group,
        "failure": failure,
    }
    with parse.usage_errors():
        return to_match("jobs", filters, lambda word: "--" + word.replace("_", "-"))


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `which` of a command by the options of `job_match`, which make it."""
    own = inspect.signature(command, eval_str=True).parameters
    options = inspect.signature(job_match, eval_str=True).parameters

    @functools.wraps(command)
    def call(**given: Any) -> None:
        which = job_match(**{name: given.pop(name) for name in options})
        command(which=which, **given)

    parameters = [each for name, mine in own.items() for each in (options.values() if name == "which" else [mine])]
    # Typer reads the options of a command from its signature and its annotations.
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(call)["__signature__"] = inspect.Signature(parameters)
    return call
