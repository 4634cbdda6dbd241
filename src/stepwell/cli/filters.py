"""Which jobs: the options by which they are listed, counted, retried and cancelled. The words are those of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from stepwell.cli import usage
from stepwell.jobs.filter import JobFilters, to_match
from stepwell.postgres.queries.search import JobMatch

StateOption = Annotated[
    list[str] | None,
    typer.Option("--state", "-s", metavar="STATE", help="In this state; may be repeated.", show_default=False),
]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="In this queue.")]
TaskOption = Annotated[str | None, typer.Option("--task", "-t", metavar="NAME", help="Of this task.")]
OlderOption = Annotated[
    str | None, typer.Option("--older-than", metavar="LENGTH", help="Enqueued longer ago: 30s, 1h30m, 7d.")
]
NewerOption = Annotated[str | None, typer.Option("--newer-than", metavar="LENGTH", help="Enqueued since then.")]
MetadataOption = Annotated[
    str | None, typer.Option("--metadata", "-m", metavar="JSON", help="With all of this in its metadata.")
]
OwnerOption = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Of the app of this name.")]
WorkerOption = Annotated[
    str | None, typer.Option("--worker", "-w", metavar="ID", help="That this worker runs, or was the last to run.")
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="With this text in its error, in upper or lower case.")
]


def job_match(
    states: Sequence[str] | None,
    queue: str | None,
    task: str | None,
    older_than: str | None,
    newer_than: str | None,
    metadata: str | None,
    owner: str | None = None,
    worker: str | None = None,
    error: str | None = None,
) -> JobMatch:
    """The filter that the options describe."""
    filters: JobFilters = {
        "state": cast("Any", states or None),
        "queue": queue,
        "task": task,
        "older_than": older_than,
        "newer_than": newer_than,
        "metadata": None if metadata is None else usage.json_object(metadata, "--metadata"),
        "owner": owner,
        "worker": worker,
        "error": error,
    }
    with usage.refusing():
        return to_match("jobs", filters, option)


def option(word: str) -> str:
    """A word of Python as it is written on the command line."""
    return "--" + word.replace("_", "-")
