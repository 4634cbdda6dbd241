"""The options that choose jobs to list, count, retry or cancel. They are named like the filters in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from stepwell.cli import parse
from stepwell.jobs.filter import JobFilters, to_match
from stepwell.postgres.queries import JobMatch

StateOption = Annotated[
    list[str] | None,
    typer.Option("--state", "-s", metavar="STATE", help="Only jobs in this state. Repeatable.", show_default=False),
]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="Only jobs in this queue.")]
TaskOption = Annotated[str | None, typer.Option("--task", "-t", metavar="NAME", help="Only jobs of this task.")]
OlderOption = Annotated[
    str | None,
    typer.Option("--older-than", metavar="DURATION", help="Only jobs enqueued longer ago, such as 30s, 1h30m or 7d."),
]
NewerOption = Annotated[
    str | None, typer.Option("--newer-than", metavar="DURATION", help="Only jobs enqueued more recently.")
]
MetadataOption = Annotated[
    str | None, typer.Option("--metadata", "-m", metavar="JSON", help="Only jobs whose metadata contains this object.")
]
OwnerOption = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Only jobs of the app of this name.")]
WorkerOption = Annotated[
    str | None, typer.Option("--worker", "-w", metavar="ID", help="Only jobs that this worker runs or was last to run.")
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only jobs with this text in their error, in any case.")
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
        "metadata": None if metadata is None else parse.json_object(metadata, "--metadata"),
        "owner": owner,
        "worker": worker,
        "error": error,
    }
    with parse.usage_errors():
        return to_match("jobs", filters, lambda word: "--" + word.replace("_", "-"))
