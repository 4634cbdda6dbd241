"""Retry, cancel, run, delete or move jobs, by id or by filter, and print what became of each."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from stepwell.cli import bulk, known_names, parse
from stepwell.cli.database import open_database, person
from stepwell.cli.jobs.steps import check_step_to_enter
from stepwell.cli.options import ask, check_can_ask
from stepwell.cli.output import complain, say
from stepwell.jobs.act_by_id import act_by_id
from stepwell.jobs.bulk import Became, JobAct
from stepwell.jobs.bulk_operation import count_bulk, start_bulk
from stepwell.postgres.queries.bulk import Bulk
from stepwell.postgres.queries.search import JobMatch
from stepwell.postgres.query_plan import run
from stepwell.telemetry.bus import counted


def change_jobs(
    act: JobAct, ids: Sequence[str], which: JobMatch, *, everything: bool, yes: bool, database: str | None
) -> None:
    """Change the jobs with these ids, or without ids all that match the filter."""
    filtered = which != JobMatch()
    if ids and (filtered or everything):
        raise parse.UsageError(f"jobs {act.verb} takes ids or filters, not both")
    if not ids and not filtered and not everything:
        raise parse.UsageError(
            f"which jobs? Give stepwell jobs {act.verb} their ids, a filter such as --task NAME, or --all"
        )
    if ids:
        change_ids(act, ids, database, yes=yes)
        return
    if act.step is not None:
        raise parse.UsageError("--step needs the ids of jobs: not every job that a filter matches has the step")
    with parse.usage_errors():
        which = act.narrow(which, "--state")
    _change_matching(act, which, database, yes=yes)


def change_ids(act: JobAct, typed: Sequence[str], database: str | None, *, yes: bool = False) -> None:
    """Change the jobs with these ids. Exits with code 1 if one could not be changed."""
    ids = list(dict.fromkeys(parse.job_id(one) for one in typed))
    with open_database(database) as found:
        if act.step is not None and act.has_input:
            for job_id in ids:
                check_step_to_enter(found, job_id, act.step, yes=yes)
        changed = run(act_by_id(act, ids), found)
    for job_id in ids:
        became = changed.became.get(job_id)
        say(f"{job_id} {changed.refused[job_id] if became is None else _outcome(act, became)}")
    if changed.refused:
        raise typer.Exit(1)


def _change_matching(act: JobAct, which: JobMatch, database: str | None, *, yes: bool) -> None:
    with open_database(database) as found:
        confirmed = None
        if not yes:
            confirmed = run(count_bulk(act, which), found)
            if not (confirmed.count or confirmed.more):
                known_names.check_filter(found, which, known_names.refuse)
            check_can_ask(f"jobs {act.verb}", yes=yes)
            if confirmed.count or confirmed.more:
                ask(f"{act.verb} {confirmed.of('job')}?")
        bulk_id = run(start_bulk(act, which, person(), confirmed), found)
        operation = bulk.work_off(found, bulk.find(found, bulk_id))
        if not operation.done + operation.skipped + operation.failed:
            known_names.check_filter(found, which, known_names.refuse)
    say(_summary(act, operation))
    if operation.state == "stopped":
        complain("stopped by somebody before the end")
        raise typer.Exit(1)
    if operation.failed:
        complain(f"{counted(operation.failed, 'job')} could not be changed, the last because of: {operation.error}")
        raise typer.Exit(1)


def _summary(act: JobAct, operation: Bulk) -> str:
    became = operation.became
    if act.verb != "cancel":
        done = {"retry": "retried", "run": "made ready", "delete": "deleted", "move": "moved"}[act.verb]
        return f"{done} {counted(operation.done, 'job')}"
    running = f"; asked the workers of {became['running']} running to stop them" if "running" in became else ""
    undoing = f"; {became['undoing']} undo their steps first" if "undoing" in became else ""
    return f"cancelled {counted(became.get('cancelled', 0), 'job')}{running}{undoing}"


_BECAME: dict[Became, str] = {
    "ready": "is ready to run again",
    "cancelled": "is cancelled",
    "running": "is running: its worker was asked to stop it",
    "undoing": "undoes its steps and is then cancelled",
    "deleted": "is deleted",
    "moved": "is moved",
}


def _outcome(act: JobAct, became: Became) -> str:
    return "is ready to run" if act.verb == "run" else _BECAME[became]
