"""Checks of schedules: those that do not fire, and those whose jobs no worker would run."""

from __future__ import annotations

from typing import Any

import psycopg

from stepwell.doctor.finding import Finding, listed, local_time
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch

_LATE = 60.0


def check_schedules(connection: psycopg.Connection[Any], _: Database) -> Finding:
    schedules = fetch(connection, queries.schedules.schedules())
    now = fetch(connection, queries.reads.clock())[0]
    late = [
        (each, each.next_run_at)
        for each in schedules
        if each.next_run_at and (now - each.next_run_at).total_seconds() > _LATE
    ]
    if late:
        shown = listed([f"{each.name} of {each.owner}, due at {local_time(due)}" for each, due in late])
        return Finding(
            "problem", f"not fired: {shown}: start a worker; if one runs, see its log", [each for each, _ in late]
        )
    alive = [worker for worker in fetch(connection, queries.reads.workers()) if worker.alive]
    owners = {worker.owner for worker in alive}
    orphans = [each for each in schedules if each.declared and each.owner not in owners] if alive else []
    if orphans:
        first = orphans[0]
        return Finding(
            "warning",
            f"no live worker belongs to the app of {listed([f'{each.name} of {each.owner}' for each in orphans])}: "
            f'start one, or, if the app was renamed, "stepwell schedules delete {first.name} --owner {first.owner}"',
            orphans,
        )
    known = {task for worker in alive for task in worker.tasks}
    unserved = [each for each in schedules if each.task not in known and not each.paused_at]
    if unserved:
        shown = listed([f"{each.name} of {each.owner} (task {each.task})" for each in unserved])
        return Finding(
            "warning", f"no live worker runs the task of {shown}: start one that does, or delete the schedule", unserved
        )
    return Finding("ok", f"{len(schedules)} in total, none is late")
