"""The checks of `stepwell doctor`: each looks at one thing and returns what it found. They change and print nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from stepwell.cli.output import local, record
from stepwell.errors import DatabaseError, SchemaMismatch
from stepwell.postgres import migrate, queries
from stepwell.postgres.database import Database
from stepwell.postgres.errors import in_short
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import describe

Status = Literal["ok", "warning", "problem"]

_NOTIFY_PATIENCE = 2.0
_STATEMENT_LIMIT = 10.0
_WAITS_LONG, _WAITS_TOO_LONG = 60.0, 600.0
_FIRES_LATE = 60.0
_MANY_DEAD, _FAR_TOO_MANY_DEAD = 100_000, 5_000_000
_OLD_SNAPSHOT, _ANCIENT_SNAPSHOT = 300.0, 3600.0
_OLD_XIDS = 1_000_000
_MANY_DEFAULT_ROWS = 100_000
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: how it stands, and a sentence with the next act. `details` are for programs."""

    check: str
    status: Status
    text: str
    details: tuple[dict[str, Any], ...] = ()


def examine(database: Database) -> list[Finding]:
    """All checks, one after the other. Raises only if the database cannot be reached at all."""
    with database.connect() as connection:
        fetch(connection, queries.health.limit_statements(_STATEMENT_LIMIT))
        return [_guarded(name, check, connection, database) for name, check in _CHECKS.items()]


def check_schema(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Whether this stepwell and the schema belong together."""
    try:
        migrate.check(connection)
    except SchemaMismatch as error:
        return Finding("schema", "problem", str(error))
    version, needed = migrate.current(connection), migrate.newest()
    if version > needed:
        return Finding("schema", "ok", f"is at {version}, newer than {needed}, and works with this stepwell")
    return Finding("schema", "ok", f"is at {needed}, which is what this stepwell needs")


def check_notifications(connection: psycopg.Connection[Any], database: Database) -> Finding:
    """Whether a notification sent through one connection arrives at another."""
    token = secrets.token_hex(8)
    with database.connect() as ear:
        ear.execute(queries.health.LISTEN_FOR_DOCTOR)
        fetch(connection, queries.health.notify("stepwell_doctor", token))
        # Another doctor may be at work on the same channel.
        for note in ear.notifies(timeout=_NOTIFY_PATIENCE):
            if note.payload == token:
                return Finding("notifications", "ok", "arrive")
    return Finding(
        "notifications",
        "warning",
        f"one that was sent did not arrive within {describe(_NOTIFY_PATIENCE)}: workers poll instead and start jobs "
        "later; connect them to Postgres directly, or through a pooler in session mode",
    )


def check_oldest_ready(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """How long the job that waits longest has been due."""
    found = fetch(connection, queries.health.oldest_ready())
    if not found:
        return Finding("oldest ready job", "ok", "no job is ready and waits")
    oldest = found[0]
    text = f"{oldest.task} {oldest.id} in queue {oldest.queue} has been due for {describe(max(oldest.age, 0))}"
    details = (record(oldest),)
    if oldest.paused:
        what, resume = {
            "everything": ("everything", "--all"),
            "queue": ("the queue", oldest.queue),
            "task": ("the task", f"--task {oldest.task}"),
        }[oldest.paused]
        return Finding(
            "oldest ready job", "warning", f'{text}, but {what} is paused: "stepwell resume {resume}"', details
        )
    if oldest.age < _WAITS_LONG:
        return Finding("oldest ready job", "ok", text, details)
    status = "warning" if oldest.age < _WAITS_TOO_LONG else "problem"
    if not oldest.served:
        act = "no live worker runs that task from that queue: start one"
    else:
        act = "start more workers for that queue, or raise their --concurrency"
    return Finding("oldest ready job", status, f"{text}: {act}", details)


def check_dead_rows(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Whether vacuum keeps up with the finished jobs."""
    found = fetch(connection, queries.health.dead_rows())
    if not found:
        return _not_checked("dead rows")
    rows = found[0]
    last = "never vacuumed" if rows.seconds_since is None else f"last vacuumed {describe(rows.seconds_since)} ago"
    text = f"about {rows.dead} dead and {rows.live} live rows in stepwell.job, {last}"
    if rows.dead < _MANY_DEAD or rows.dead < 2 * rows.live:
        return Finding("dead rows", "ok", text, (record(rows),))
    status = "warning" if rows.dead < _FAR_TOO_MANY_DEAD else "problem"
    return Finding(
        "dead rows",
        status,
        f'{text}: end what holds the oldest snapshot, see that autovacuum is on, or run "vacuum stepwell.job"',
        (record(rows),),
    )


def check_snapshots(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Who keeps dead rows from being taken away."""
    return judge_snapshots(
        fetch(connection, queries.health.snapshot_holders()), fetch(connection, queries.health.hidden_sessions())[0]
    )


def judge_snapshots(holders: list[queries.health.SnapshotHolder], hidden: int) -> Finding:
    """What it means that these hold snapshots, and that some sessions are hidden from us."""
    details = tuple(record(holder) for holder in holders)
    unseen = (
        f'; {hidden} sessions are hidden from this role: "grant pg_read_all_stats" to it to see them' if hidden else ""
    )
    old = [holder for holder in holders if _is_old(holder)]
    if not old:
        oldest = f"the oldest is held by {_holder(holders[0])}" if holders else "nobody holds one"
        return Finding("oldest snapshot", "warning" if hidden else "ok", oldest + unseen, details)
    status = "problem" if any((holder.seconds or 0) >= _ANCIENT_SNAPSHOT for holder in old) else "warning"
    return Finding(
        "oldest snapshot",
        status,
        f"dead rows must stay because of {_some([_holder(holder) for holder in old])}: {_end(old[0])}{unseen}",
        details,
    )


def check_unknown_tasks(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Ready jobs that nobody will ever claim."""
    uncovered = fetch(connection, queries.health.uncovered_tasks())
    if not uncovered:
        return Finding("unknown tasks", "ok", "a live worker runs the task and queue of every ready job")
    shown = _some(
        [
            f"{found.count} of {found.task} in queue {found.queue}"
            + (f" that belong to app {found.owner}" if found.owner is not None else "")
            for found in uncovered
        ]
    )
    named = ", in an App of that name," if any(found.owner is not None for found in uncovered) else ""
    return Finding(
        "unknown tasks",
        "problem",
        f"no live worker runs {shown}: start one that has the task{named} and claims from the queue, or cancel them",
        tuple(record(found) for found in uncovered),
    )


def check_misfits(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Jobs that were made for other code than the live workers have."""
    misfits = fetch(connection, queries.health.misfit_tasks())
    if not misfits:
        return Finding("misfits", "ok", "no job waits for a worker that its args fit")
    shown = _some(
        [f"{each.count} of {each.task} (for example: {each.error}), until {local(each.until)}" for each in misfits]
    )
    return Finding(
        "misfits",
        "warning",
        f"their args do not fit the code of the workers that claimed them: {shown}: start workers with the code that "
        "these jobs were made for, or cancel them; they fail then",
        tuple(record(each) for each in misfits),
    )


def check_shared_tasks(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Tasks of one name that belong to several apps."""
    shared = fetch(connection, queries.health.shared_tasks())
    if not shared:
        return Finding("shared tasks", "ok", "no two apps have a task of the same name")
    details = tuple(record(found) for found in shared)
    unnamed = [found for found in shared if not found.named]
    shown = _some([f"{found.task} ({', '.join(found.owners)})" for found in unnamed or shared])
    if unnamed:
        return Finding(
            "shared tasks",
            "warning",
            f"live workers of several apps have {shown}: they may take each other's jobs where they claim from one "
            "queue; give each app a name, App(name=...), or other task names",
            details,
        )
    return Finding(
        "shared tasks",
        "ok",
        f"several named apps have {shown}: each runs its own jobs, but a job that was enqueued without an owner may go "
        "to any of them",
        details,
    )


def check_pauses(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """What is not claimed because somebody said so."""
    paused = fetch(connection, queries.fleet.pauses())
    if not paused:
        return Finding("pauses", "ok", "nothing is paused")
    option = {"everything": "--all", "queue": "", "task": "--task ", "worker": "--worker "}
    shown = _some(
        [
            f"{pause.scope} {pause.name}".rstrip()
            + f' since {local(pause.asked_at)} ("stepwell resume {option[pause.scope]}{pause.name}")'
            for pause in paused
        ]
    )
    return Finding("pauses", "warning", shown, tuple(record(pause) for pause in paused))


def check_schedules(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Schedules that nobody fires, or whose jobs nobody would run."""
    schedules = fetch(connection, queries.schedules.schedules())
    now = fetch(connection, queries.reads.clock())[0]
    late = [each for each in schedules if each.next_run_at and (now - each.next_run_at).total_seconds() > _FIRES_LATE]
    if late:
        shown = _some([f"{each.name} of {each.owner}, due at {local(each.next_run_at)}" for each in late])
        return Finding(
            "schedules",
            "problem",
            f"not fired: {shown}: start a worker; if one runs, its log says why",
            tuple(record(each) for each in late),
        )
    alive = [worker for worker in fetch(connection, queries.reads.workers()) if worker.alive]
    owners = {worker.owner for worker in alive}
    orphans = [each for each in schedules if each.declared and each.owner not in owners] if alive else []
    if orphans:
        first = orphans[0]
        return Finding(
            "schedules",
            "warning",
            f"no live worker is of the app of {_some([f'{each.name} of {each.owner}' for each in orphans])}: start "
            f'one, or, if the app was renamed, "stepwell schedules delete {first.name} --owner {first.owner}"',
            tuple(record(each) for each in orphans),
        )
    known = {task for worker in alive for task in worker.tasks}
    lost = [each for each in schedules if each.task not in known and not each.paused_at]
    if lost:
        shown = _some([f"{each.name} of {each.owner} (task {each.task})" for each in lost])
        return Finding(
            "schedules",
            "warning",
            f"no live worker runs the task of {shown}: start one that does, or delete the schedule",
            tuple(record(each) for each in lost),
        )
    return Finding("schedules", "ok", f"{len(schedules)} of them, none is late")


def check_default_partitions(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Finished jobs for whose day no partition was made."""
    rows = fetch(connection, queries.health.default_rows())[0]
    count = rows.history + rows.failure
    if not count:
        return Finding("default partitions", "ok", "are empty", (record(rows),))
    return Finding(
        "default partitions",
        "problem" if count > _MANY_DEFAULT_ROWS else "warning",
        f"hold {rows.history} jobs and {rows.failure} failures, as no worker made the partitions for them in time: "
        "keep a worker running with these tasks, it moves the rows",
        (record(rows),),
    )


def check_leases(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Workers that have fallen silent, and whether anybody is there to rescue their jobs."""
    workers = fetch(connection, queries.reads.workers())
    alive = sum(worker.alive for worker in workers)
    dead = [worker for worker in workers if not worker.alive]
    if not dead:
        return Finding("workers", "ok", f"{alive} alive, no lease has ended")
    who = _some([f"{worker.id} (pid {worker.pid} on {worker.host})" for worker in dead])
    details = tuple(record(worker) for worker in dead)
    if alive:
        return Finding(
            "workers", "warning", f"the lease of {who} has ended: a live worker rescues its jobs in seconds", details
        )
    return Finding(
        "workers",
        "problem",
        f"the lease of {who} has ended and no worker is alive: start one, it rescues their jobs",
        details,
    )


_CHECKS: dict[str, Callable[[psycopg.Connection[Any], Database], Finding]] = {
    "schema": check_schema,
    "notifications": check_notifications,
    "oldest ready job": check_oldest_ready,
    "dead rows": check_dead_rows,
    "oldest snapshot": check_snapshots,
    "unknown tasks": check_unknown_tasks,
    "misfits": check_misfits,
    "shared tasks": check_shared_tasks,
    "pauses": check_pauses,
    "schedules": check_schedules,
    "default partitions": check_default_partitions,
    "workers": check_leases,
}


def _guarded(
    name: str,
    check: Callable[[psycopg.Connection[Any], Database], Finding],
    connection: psycopg.Connection[Any],
    database: Database,
) -> Finding:
    """The check, or why it could not look."""
    try:
        return check(connection, database)
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction):
        return _not_checked(name)
    except psycopg.errors.InsufficientPrivilege as error:
        [who] = fetch(connection, queries.rights.who())
        said = (
            f"role {who.role!r} may not look ({in_short(error)}): ask again as the owner of the schema, {who.owner!r}"
        )
    except psycopg.errors.QueryCanceled:
        said = f"not checked: the look took longer than {describe(_STATEMENT_LIMIT)}"
    except DatabaseError as error:
        said = f"not checked: {error}"
    # Who cannot even tell whether there is a schema that fits has checked nothing.
    return Finding(name, "problem" if name == "schema" else "warning", said)


def _not_checked(name: str) -> Finding:
    return Finding(name, "warning", 'not checked: the stepwell schema is missing or incomplete: run "stepwell migrate"')


def _is_old(holder: queries.health.SnapshotHolder) -> bool:
    return (holder.seconds or 0) >= _OLD_SNAPSHOT or holder.xids >= _OLD_XIDS


def _holder(holder: queries.health.SnapshotHolder) -> str:
    named = " ".join(part for part in (holder.kind, holder.name, f"pid {holder.pid}" if holder.pid else None) if part)
    known = [
        holder.user and f"user {holder.user}",
        holder.state,
        holder.since and f"since {local(holder.since)}",
        holder.query_start and f"last query {local(holder.query_start)}",
        f"{holder.xids} transactions ago",
    ]
    return f"{named} ({', '.join(part for part in known if part)})"


def _end(holder: queries.health.SnapshotHolder) -> str:
    if holder.kind == "prepared transaction":
        return 'finish it with "commit prepared" or "rollback prepared"'
    if holder.kind == "replication slot":
        return "start its standby, or drop the slot"
    return f'end it with "select pg_terminate_backend({holder.pid})"'


def _some(parts: list[str]) -> str:
    more = len(parts) - _SHOWN
    return "; ".join(parts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
