"""Retry or cancel jobs, named by their ids or by a filter, and say what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg
import typer

from stepwell import queries
from stepwell.cli import names, usage
from stepwell.cli.confirm import ask, check_can_ask
from stepwell.cli.job_steps import lacks_step, no_such_step
from stepwell.cli.output import say
from stepwell.cli.session import session
from stepwell.db import fetch
from stepwell.job import LIVE, State
from stepwell.queries import JobFilter

_BATCH = 1000

Became = Literal["ready", "cancelled", "running", "undoing"]


@dataclass(frozen=True, slots=True)
class Change:
    """What can be done to many jobs."""

    verb: str
    states: tuple[State, ...]
    """The states it applies to."""
    default: tuple[State, ...]
    """The states a filter means that names none."""
    make: Callable[[psycopg.Connection[Any], Sequence[str]], dict[str, Became]]
    """Does it; returns what those it applied to became."""
    step: str | None = None
    """The step that the jobs are to go back to."""
    goes_back: bool = False
    """They do not go on where they stood."""


def change(
    what: Change,
    ids: Sequence[str],
    which: JobFilter,
    *,
    everything: bool,
    yes: bool,
    database: str | None,
) -> None:
    """Change the jobs with these ids, or else all that the filter lets through."""
    filtered = which != JobFilter()
    if ids and (filtered or everything):
        raise usage.Usage(f"jobs {what.verb} takes ids or filters, not both")
    if not ids and not filtered and not everything:
        raise usage.Usage(f"which jobs? Give jobs {what.verb} their ids, a filter such as --task NAME, or --all")
    if ids:
        _change_ids(what, list(dict.fromkeys(usage.job_id(typed) for typed in ids)), database)
        return
    if what.step is not None:
        raise usage.Usage("--step is for jobs that are named by their ids: not all that a filter finds may have it")
    for state in which.states or ():
        if state not in what.states:
            raise usage.Usage(f"--state is {state!r}: jobs {what.verb} is for those {', '.join(what.states)}")
    check_can_ask(f"jobs {what.verb}", yes=yes)
    _change_filtered(what, replace(which, states=which.states or what.default), database, yes=yes)


def _change_ids(what: Change, ids: list[str], database: str | None) -> None:
    became: dict[str, Became] = {}
    with session(database) as connection:
        for start in range(0, len(ids), _BATCH):
            became |= what.make(connection, ids[start : start + _BATCH])
        left = [job_id for job_id in ids if job_id not in became]
        states = dict(fetch(connection, queries.job_states(left))) if left else {}
        refused = {job_id: _refusal(connection, what, job_id, states.get(job_id)) for job_id in left}
    for job_id in ids:
        say(f"{job_id} {_BECAME[became[job_id]] if job_id in became else refused[job_id]}")
    if left:
        raise typer.Exit(1)


def _change_filtered(what: Change, which: JobFilter, database: str | None, *, yes: bool) -> None:
    to_retry = what.verb == "retry"
    with session(database) as connection:
        if not yes and (count := fetch(connection, queries.count_jobs(which, to_retry=to_retry))[0]):
            ask(f"{what.verb} {_jobs(count)}?")
        total: Counter[Became] = Counter()
        for batch in _batches(connection, which, to_retry=to_retry):
            total.update(what.make(connection, batch).values())
        if not total:
            names.refuse(connection, {"queue": which.queue, "task": which.task, "owner": which.owner})
    if to_retry:
        say(f"retried {_jobs(total['ready'])}")
    else:
        told = f"; told the workers of {total['running']} that run" if total["running"] else ""
        undoing = f"; {total['undoing']} undo their steps first" if total["undoing"] else ""
        say(f"cancelled {_jobs(total['cancelled'])}{told}{undoing}")


def _batches(connection: psycopg.Connection[Any], which: JobFilter, *, to_retry: bool) -> Iterator[list[str]]:
    """Each job that matches, once. One that is cancelled while it runs, or that fails again after its retry, matches
    still: the walk goes from the newest to the oldest and never back."""
    before: str | None = None
    while batch := fetch(connection, queries.job_ids(which, before, _BATCH, to_retry=to_retry)):
        yield batch
        before = batch[-1]


def retrying(step: str | None, *, from_start: bool) -> Change:
    """Run jobs again: where they stood, from a step on, or from the start."""
    if step is not None and from_start:
        raise usage.Usage("--step and --from-start exclude each other: give one")

    def make(connection: psycopg.Connection[Any], ids: Sequence[str]) -> dict[str, Became]:
        if step is None:
            back = fetch(connection, queries.retry(ids, from_start=from_start))[0]
            return {str(job_id): "ready" for job_id in back}
        became: dict[str, Became] = {}
        for job_id in ids:
            # Each by itself: one that has no such step refuses the whole statement.
            with lacks_step():
                became |= {str(back): "ready" for back in fetch(connection, queries.retry([job_id], step))[0]}
        return became

    return Change(
        "retry", ("failed", "cancelled", "scheduled"), ("failed",), make, step, step is not None or from_start
    )


def cancelling(reason: str | None) -> Change:
    """Cancel jobs."""

    def make(connection: psycopg.Connection[Any], ids: Sequence[str]) -> dict[str, Became]:
        # One that is made ready is run once more, to undo its steps.
        became: dict[str, Became] = {"running": "running", "ready": "undoing"}
        return {
            str(job_id): became.get(state, "cancelled")
            for job_id, state in fetch(connection, queries.cancel(ids, reason))
        }

    return Change("cancel", LIVE, LIVE, make)


_BECAME: dict[Became, str] = {
    "ready": "is ready to run again",
    "cancelled": "is cancelled",
    "running": "is running: its worker was told to stop it",
    "undoing": "undoes its steps, and is cancelled then",
}


def _refusal(connection: psycopg.Connection[Any], what: Change, job_id: str, state: str | None) -> str:
    match state:
        case None:
            return "is not known: no such job, or its history is not kept any more"
        case "failed" | "cancelled" if what.step is not None:
            return no_such_step(connection, job_id, what.step)
        case "scheduled" if what.goes_back:
            return "is scheduled: cancel it first, or retry it where it stands"
        case "succeeded" | "failed":
            return f"has already {state}: nothing to {what.verb}"
        case "cancelled" | "ready":
            return f"is already {state}: nothing to {what.verb}"
        case _:
            return f"is {state}: nothing to {what.verb}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
