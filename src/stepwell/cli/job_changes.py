"""Retry or cancel jobs, named by their ids or by a filter, and say what became of each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg
import typer

from stepwell import queries
from stepwell.cli import usage
from stepwell.cli.output import say
from stepwell.cli.session import session
from stepwell.db import fetch
from stepwell.job import LIVE, State
from stepwell.queries import JobFilter

_BATCH = 1000

Became = Literal["ready", "cancelled", "running"]


@dataclass(frozen=True, slots=True)
class Change:
    """What can be done to many jobs."""

    verb: str
    states: tuple[State, ...]
    """The states it applies to."""
    default: tuple[State, ...]
    """The states a filter means that names none."""
    make: Callable[[psycopg.Connection[Any], Sequence[str], str | None], dict[str, Became]]
    """Does it; returns what those it applied to became."""


def change(
    what: Change,
    ids: Sequence[str],
    which: JobFilter,
    *,
    everything: bool,
    yes: bool,
    reason: str | None,
    database: str | None,
) -> None:
    """Change the jobs with these ids, or else all that the filter lets through."""
    filtered = which != JobFilter()
    if ids and (filtered or everything):
        raise usage.Usage(f"jobs {what.verb} takes ids or filters, not both")
    if not ids and not filtered and not everything:
        raise usage.Usage(f"which jobs? Give jobs {what.verb} their ids, a filter such as --task NAME, or --all")
    if ids:
        _change_ids(what, list(dict.fromkeys(usage.job_id(typed) for typed in ids)), reason, database)
        return
    for state in which.states or ():
        if state not in what.states:
            raise usage.Usage(f"--state is {state!r}: jobs {what.verb} is for those {', '.join(what.states)}")
    _change_filtered(what, replace(which, states=which.states or what.default), reason, database, yes=yes)


def _change_ids(what: Change, ids: list[str], reason: str | None, database: str | None) -> None:
    became: dict[str, Became] = {}
    with session(database) as connection:
        for start in range(0, len(ids), _BATCH):
            became |= what.make(connection, ids[start : start + _BATCH], reason)
        left = [job_id for job_id in ids if job_id not in became]
        states = dict(fetch(connection, queries.job_states(left))) if left else {}
    for job_id in ids:
        say(f"{job_id} {_BECAME[became[job_id]] if job_id in became else _refusal(what, states.get(job_id))}")
    if left:
        raise typer.Exit(1)


def _change_filtered(what: Change, which: JobFilter, reason: str | None, database: str | None, *, yes: bool) -> None:
    with session(database) as connection:
        if not yes and sys.stdin.isatty():
            count = fetch(connection, queries.count_jobs(which, to_retry=what is RETRY))[0]
            if count and not typer.confirm(f"{what.verb} {_jobs(count)}?", err=True):
                raise typer.Exit(1)
        total: Counter[Became] = Counter()
        for batch in _batches(connection, which, to_retry=what is RETRY):
            total.update(what.make(connection, batch, reason).values())
    if what is RETRY:
        say(f"retried {_jobs(total['ready'])}")
    else:
        told = f"; told the workers of {total['running']} that run" if total["running"] else ""
        say(f"cancelled {_jobs(total['cancelled'])}{told}")


def _batches(connection: psycopg.Connection[Any], which: JobFilter, *, to_retry: bool) -> Iterator[list[str]]:
    """Each job that matches, once. One that is cancelled while it runs, or that fails again after its retry, matches
    still: the walk goes from the newest to the oldest and never back."""
    before: str | None = None
    while batch := fetch(connection, queries.job_ids(which, before, _BATCH, to_retry=to_retry)):
        yield batch
        before = batch[-1]


def _retry(connection: psycopg.Connection[Any], ids: Sequence[str], _: str | None) -> dict[str, Became]:
    return {str(job_id): "ready" for job_id in fetch(connection, queries.retry(ids))[0]}


def _cancel(connection: psycopg.Connection[Any], ids: Sequence[str], reason: str | None) -> dict[str, Became]:
    return {
        str(job_id): "running" if state == "running" else "cancelled"
        for job_id, state in fetch(connection, queries.cancel(ids, reason))
    }


RETRY = Change("retry", ("failed", "cancelled", "scheduled"), ("failed",), _retry)
CANCEL = Change("cancel", LIVE, LIVE, _cancel)

_BECAME: dict[Became, str] = {
    "ready": "is ready to run again",
    "cancelled": "is cancelled",
    "running": "is running: its worker was told to stop it",
}


def _refusal(what: Change, state: str | None) -> str:
    match state:
        case None:
            return "is not known: no such job, or its history is not kept any more"
        case "succeeded" | "failed":
            return f"has already {state}: nothing to {what.verb}"
        case "cancelled" | "ready":
            return f"is already {state}: nothing to {what.verb}"
        case _:
            return f"is {state}: nothing to {what.verb}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
