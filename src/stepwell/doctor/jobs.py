"""Checks of jobs and schedules: those that are late, and those that no worker will run."""

from __future__ import annotations

from typing import Any

import psycopg

from stepwell.doctor.finding import Finding, listed
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import describe, local_time

_LONG, _TOO_LONG = 60.0, 600.0


def check_oldest_ready(connection: psycopg.Connection[Any], _: Database) -> Finding:
    found = fetch(connection, queries.health.oldest_ready())
    if not found:
        return Finding("ok", "no job is ready and waiting")
    oldest = found[0]
    text = f"{oldest.task} {oldest.id} in queue {oldest.queue} has been due for {describe(max(oldest.age, 0))}"
    if oldest.paused:
        what, resume = {
            "everything": ("everything", "--all"),
            "queue": ("the queue", oldest.queue),
            "task": ("the task", f"--task {oldest.task}"),
        }[oldest.paused]
        return Finding("warning", f'{text}, but {what} is paused: "stepwell resume {resume}"', found)
    if oldest.age < _LONG:
        return Finding("ok", text, found)
    if not oldest.served:
        act = "no live worker runs that task from that queue: start one"
    else:
        act = "start more workers for that queue, or raise their --concurrency"
    return Finding("warning" if oldest.age < _TOO_LONG else "problem", f"{text}: {act}", found)


def check_unknown_tasks(connection: psycopg.Connection[Any], _: Database) -> Finding:
    uncovered = fetch(connection, queries.health.uncovered_tasks())
    if not uncovered:
        return Finding("ok", "a live worker runs the task and queue of every ready job")
    shown = listed(
        [
            f"{found.count} of {found.task} in queue {found.queue}"
            + (f" that belong to app {found.owner}" if found.owner is not None else "")
            for found in uncovered
        ]
    )
    if not any(worker.alive for worker in fetch(connection, queries.reads.workers())):
        return Finding("problem", f"no worker is alive, and ready jobs wait: {shown}: start one", uncovered)
    named = ", in an App of that name," if any(found.owner is not None for found in uncovered) else ""
    return Finding(
        "problem",
        f"no live worker runs {shown}: start one that has the task{named} and claims from the queue; or move them, if "
        'the name of the queue is mistyped: "stepwell jobs move"; or cancel them',
        uncovered,
    )


def check_misfits(connection: psycopg.Connection[Any], _: Database) -> Finding:
    misfits = fetch(connection, queries.health.misfit_tasks())
    if not misfits:
        return Finding("ok", "the args of all jobs fit the code of the workers")
    shown = listed(
        [f"{each.count} of {each.task} (for example: {each.error}), until {local_time(each.until)}" for each in misfits]
    )
    return Finding(
        "warning",
        f"their args do not fit the code of the workers that claimed them: {shown}: start workers with the code that "
        "these jobs were enqueued for, or cancel them; after that time they fail",
        misfits,
    )


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
