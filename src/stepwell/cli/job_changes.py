"""Retry, cancel or hurry jobs, named by their ids or by a filter, and say what became of each."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg
import typer

from stepwell.cli import names, usage
from stepwell.cli.confirm import ask, check_can_ask
from stepwell.cli.job_steps import check_step_to_enter, lacks_step, no_such_step
from stepwell.cli.output import complain, say
from stepwell.cli.session import opened, session
from stepwell.errors import WHY_NO_JOB
from stepwell.jobs.bulk import BATCH, Became, Change, change_matching, count_matching
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.search import JobMatch
from stepwell.postgres.query_plan import run

_COUNTED = 10_000
"""How many jobs are counted for the question whether they are all meant."""


def change(
    what: Change,
    ids: Sequence[str],
    which: JobMatch,
    *,
    everything: bool,
    yes: bool,
    database: str | None,
) -> None:
    """Change the jobs with these ids, or else all that the filter lets through."""
    filtered = which != JobMatch()
    if ids and (filtered or everything):
        raise usage.Usage(f"jobs {what.verb} takes ids or filters, not both")
    if not ids and not filtered and not everything:
        raise usage.Usage(f"which jobs? Give jobs {what.verb} their ids, a filter such as --task NAME, or --all")
    if ids:
        change_ids(what, ids, database, yes=yes)
        return
    if what.step is not None:
        raise usage.Usage("--step is for jobs that are named by their ids: not all that a filter finds may have it")
    with usage.refusing():
        which = what.narrow(which, "--state")
    _change_filtered(what, which, database, yes=yes)


def change_ids(what: Change, typed: Sequence[str], database: str | None, *, yes: bool = False) -> None:
    """Change the jobs with these ids."""
    ids = list(dict.fromkeys(usage.job_id(one) for one in typed))
    became: dict[str, Became] = {}
    # Each by itself if it may lack the step: one that does refuses the whole statement.
    size = BATCH if what.step is None else 1
    with session(database) as connection:
        if what.step is not None and what.has_input:
            for job_id in ids:
                check_step_to_enter(connection, job_id, what.step, yes=yes)
        for start in range(0, len(ids), size):
            with lacks_step():
                became |= what.read(fetch(connection, what.query(ids[start : start + size])))
        left = [job_id for job_id in ids if job_id not in became]
        states = dict(fetch(connection, queries.reads.job_states(left))) if left else {}
        refused = {job_id: _refusal(connection, what, job_id, states.get(job_id)) for job_id in left}
    for job_id in ids:
        say(f"{job_id} {_outcome(what, became[job_id]) if job_id in became else refused[job_id]}")
    if left:
        raise typer.Exit(1)


def _change_filtered(what: Change, which: JobMatch, database: str | None, *, yes: bool) -> None:
    with opened(database) as found:
        if not yes:
            count = run(count_matching(which, _COUNTED, float("inf"), to_retry=what.to_retry), found)
            if not count:
                _refuse_names(found, which)
            check_can_ask(f"jobs {what.verb}", yes=yes)
            if count:
                ask(f"{what.verb} {_jobs(count)}{' or more' if count == _COUNTED else ''}?")
        told = _Progress()
        try:
            total = run(change_matching(what, which, told), found)
        except BaseException:
            told.clear()
            # What was done before Ctrl-C or a lost database is committed.
            complain(f"interrupted: {_summary(what, told.total)}; to go on, give the same command again")
            raise
        told.clear()
        if not total:
            _refuse_names(found, which)
    say(_summary(what, total))


def _refuse_names(database: Database, which: JobMatch) -> None:
    with database.connect() as connection:
        names.refuse(connection, {"queue": which.queue, "task": which.task, "owner": which.owner})


def _summary(what: Change, total: Counter[Became]) -> str:
    if what.to_retry:
        return f"retried {_jobs(total['ready'])}"
    told = f"; told the workers of {total['running']} that run" if total["running"] else ""
    undoing = f"; {total['undoing']} undo their steps first" if total["undoing"] else ""
    return f"cancelled {_jobs(total['cancelled'])}{told}{undoing}"


class _Progress:
    """On a terminal, one line that says how far the work is, once it has taken more than a second."""

    def __init__(self) -> None:
        self.total: Counter[Became] = Counter()
        self._shown = False
        self._next = time.monotonic() + 1

    def __call__(self, total: Counter[Became]) -> None:
        self.total = total
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.2
            self._shown = True
            sys.stderr.write(f"\r{_jobs(total.total())} so far")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


_BECAME: dict[Became, str] = {
    "ready": "is ready to run again",
    "cancelled": "is cancelled",
    "running": "is running: its worker was told to stop it",
    "undoing": "undoes its steps, and is cancelled then",
}


def _outcome(what: Change, became: Became) -> str:
    return "is ready to run" if what.verb == "run" else _BECAME[became]


def _refusal(connection: psycopg.Connection[Any], what: Change, job_id: str, state: str | None) -> str:
    match state:
        case None:
            return f"is not known: {WHY_NO_JOB}"
        case "running" if what.verb == "run":
            return "is running already"
        case "waiting" if what.verb == "run":
            return "is waiting, for an event, a child or the end of a sleep: that belongs to its work"
        case "blocked" if what.verb == "run":
            return "is blocked: it runs when the run of its schedule before it has ended"
        case "failed" | "cancelled" if what.verb == "run":
            return f"is {state}: 'stepwell jobs retry' runs it again"
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
