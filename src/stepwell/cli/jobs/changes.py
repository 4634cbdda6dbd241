"""Retry, cancel or run jobs, by id or by filter, and print what became of each."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence

import typer

from stepwell.cli import known_names, parse
from stepwell.cli.database import open_database
from stepwell.cli.jobs.steps import check_step_to_enter
from stepwell.cli.options import ask, check_can_ask
from stepwell.cli.output import complain, say
from stepwell.jobs.bulk import Became, Change, change_matching, count_matching
from stepwell.jobs.changes import change_by_id
from stepwell.postgres.queries.search import JobMatch
from stepwell.postgres.query_plan import run
from stepwell.telemetry.bus import counted

_COUNTED = 10_000
"""How many jobs are counted at most for the question before a change."""


def change_jobs(
    change: Change, ids: Sequence[str], which: JobMatch, *, everything: bool, yes: bool, database: str | None
) -> None:
    """Change the jobs with these ids, or without ids all that match the filter."""
    filtered = which != JobMatch()
    if ids and (filtered or everything):
        raise parse.UsageError(f"jobs {change.verb} takes ids or filters, not both")
    if not ids and not filtered and not everything:
        raise parse.UsageError(f"which jobs? Give jobs {change.verb} ids, a filter such as --task NAME, or --all")
    if ids:
        change_ids(change, ids, database, yes=yes)
        return
    if change.step is not None:
        raise parse.UsageError("--step needs the ids of jobs: not every job that a filter matches has the step")
    with parse.usage_errors():
        which = change.narrow(which, "--state")
    _change_matching(change, which, database, yes=yes)


def change_ids(change: Change, typed: Sequence[str], database: str | None, *, yes: bool = False) -> None:
    """Change the jobs with these ids. Exits with code 1 if one could not be changed."""
    ids = list(dict.fromkeys(parse.job_id(one) for one in typed))
    with open_database(database) as found:
        if change.step is not None and change.has_input:
            for job_id in ids:
                check_step_to_enter(found, job_id, change.step, yes=yes)
        changed = run(change_by_id(change, ids), found)
    for job_id in ids:
        became = changed.became.get(job_id)
        say(f"{job_id} {changed.refused[job_id] if became is None else _outcome(change, became)}")
    if changed.refused:
        raise typer.Exit(1)


def _change_matching(change: Change, which: JobMatch, database: str | None, *, yes: bool) -> None:
    with open_database(database) as found:
        if not yes:
            count = run(count_matching(which, _COUNTED, float("inf"), to_retry=change.to_retry), found)
            if not count:
                known_names.check_filter(found, which, known_names.refuse)
            check_can_ask(f"jobs {change.verb}", yes=yes)
            if count:
                ask(f"{change.verb} {counted(count, 'job')}{' or more' if count == _COUNTED else ''}?")
        progress = _Progress()
        try:
            total = run(change_matching(change, which, progress), found)
        except BaseException:
            progress.clear()
            # The batches before Ctrl-C or a lost connection are committed.
            complain(f"interrupted: {_summary(change, progress.total)}; run the same command again to go on")
            raise
        progress.clear()
        if not total:
            known_names.check_filter(found, which, known_names.refuse)
    say(_summary(change, total))


def _summary(change: Change, total: Counter[Became]) -> str:
    if change.to_retry:
        return f"retried {counted(total['ready'], 'job')}"
    running = f"; asked the workers of {total['running']} running to stop them" if total["running"] else ""
    undoing = f"; {total['undoing']} undo their steps first" if total["undoing"] else ""
    return f"cancelled {counted(total['cancelled'], 'job')}{running}{undoing}"


class _Progress:
    """On a terminal, a line that counts the changed jobs, shown once the change has taken more than a second."""

    def __init__(self) -> None:
        self.total: Counter[Became] = Counter()
        self._shown = False
        self._next = time.monotonic() + 1

    def __call__(self, total: Counter[Became]) -> None:
        self.total = total
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.2
            self._shown = True
            sys.stderr.write(f"\r{counted(total.total(), 'job')} so far")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


_BECAME: dict[Became, str] = {
    "ready": "is ready to run again",
    "cancelled": "is cancelled",
    "running": "is running: its worker was asked to stop it",
    "undoing": "undoes its steps and is then cancelled",
}


def _outcome(change: Change, became: Became) -> str:
    return "is ready to run" if change.verb == "run" else _BECAME[became]
