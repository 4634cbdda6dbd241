"""Which jobs: the options by which they are listed, retried and cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from stepwell.cli import usage
from stepwell.job import FINISHED, LIVE
from stepwell.queries import JobFilter

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


def job_filter(
    states: Sequence[str] | None,
    queue: str | None,
    task: str | None,
    older_than: str | None,
    newer_than: str | None,
    metadata: str | None,
    owner: str | None = None,
) -> JobFilter:
    """The filter that the options describe."""
    for state in states or ():
        if state not in (*LIVE, *FINISHED):
            raise usage.Usage(f"--state is {state!r}: it must be one of {', '.join((*LIVE, *FINISHED))}")
    if metadata is not None:
        usage.json_object(metadata, "--metadata")
    return JobFilter(
        tuple(states) if states else None,
        queue,
        task,
        None if older_than is None else usage.length(older_than, "--older-than"),
        None if newer_than is None else usage.length(newer_than, "--newer-than"),
        metadata,
        owner=owner,
    )
