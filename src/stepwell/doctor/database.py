"""Checks of the database: its schema, its notifications, its vacuum and its partitions."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import psycopg

from stepwell.doctor.finding import NOT_CHECKED, Finding, listed
from stepwell.errors import SchemaMismatch
from stepwell.postgres import migrate, queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.health import SnapshotHolder
from stepwell.values.duration import describe, local_time

_NOTIFY_PATIENCE = 2.0
_MANY_DEAD, _FAR_TOO_MANY_DEAD = 100_000, 5_000_000
_OLD_SNAPSHOT, _ANCIENT_SNAPSHOT = 300.0, 3600.0
_OLD_XIDS = 1_000_000
_MANY_DEFAULT_ROWS = 100_000


def check_schema(connection: psycopg.Connection[Any], database: Database) -> Finding:
    try:
        migrate.check(connection, database.address.migrate_command)
    except SchemaMismatch as error:
        return Finding("problem", str(error))
    version, needed = migrate.current(connection), migrate.newest()
    if version > needed:
        return Finding("ok", f"is at {version}, newer than {needed}, and works with this stepwell")
    return Finding("ok", f"is at {needed}, the version that this stepwell needs")


def check_notifications(connection: psycopg.Connection[Any], database: Database) -> Finding:
    """Whether a notification sent on one connection arrives on another."""
    token = secrets.token_hex(8)
    with database.connect() as listener:
        listener.execute(queries.health.LISTEN_FOR_DOCTOR)
        fetch(connection, queries.health.notify("stepwell_doctor", token))
        # The token tells our notification from that of another doctor on the same channel.
        for note in listener.notifies(timeout=_NOTIFY_PATIENCE):
            if note.payload == token:
                return Finding("ok", "arrive")
    return Finding(
        "warning",
        f"a notification did not arrive within {describe(_NOTIFY_PATIENCE)}: workers poll instead and start jobs "
        "later; connect them to Postgres directly, or through a pooler in session mode",
    )


def check_dead_rows(connection: psycopg.Connection[Any], _: Database) -> Finding:
    """Whether vacuum keeps up with the finished jobs."""
    found = fetch(connection, queries.health.dead_rows())
    if not found:
        return NOT_CHECKED
    rows = found[0]
    last = "never vacuumed" if rows.seconds_since is None else f"last vacuumed {describe(rows.seconds_since)} ago"
    text = f"about {rows.dead} dead and {rows.live} live rows in stepwell.job, {last}"
    if rows.dead < _MANY_DEAD or rows.dead < 2 * rows.live:
        return Finding("ok", text, found)
    return Finding(
        "warning" if rows.dead < _FAR_TOO_MANY_DEAD else "problem",
        f'{text}: check that autovacuum is on and how old the oldest snapshot is, or run "vacuum stepwell.job"',
        found,
    )


def check_snapshots(connection: psycopg.Connection[Any], _: Database) -> Finding:
    return judge_snapshots(
        fetch(connection, queries.health.snapshot_holders()), fetch(connection, queries.health.hidden_sessions())[0]
    )


def judge_snapshots(holders: Sequence[SnapshotHolder], hidden: int) -> Finding:
    """The finding for these holders of snapshots; `hidden` counts the sessions that this role may not see."""
    unseen = (
        f'; {hidden} sessions are hidden from this role: "grant pg_read_all_stats" to it to see them' if hidden else ""
    )
    old = [holder for holder in holders if (holder.seconds or 0) >= _OLD_SNAPSHOT or holder.xids >= _OLD_XIDS]
    if not old:
        oldest = f"the oldest is held by {_describe(holders[0])}" if holders else "no session holds one"
        return Finding("warning" if hidden else "ok", oldest + unseen, holders)
    status = "problem" if any((holder.seconds or 0) >= _ANCIENT_SNAPSHOT for holder in old) else "warning"
    return Finding(
        status,
        f"dead rows cannot be vacuumed because of {listed([_describe(holder) for holder in old])}: "
        f"{_remedy(old[0])}{unseen}",
        holders,
    )


def check_default_partitions(connection: psycopg.Connection[Any], _: Database) -> Finding:
    found = fetch(connection, queries.health.default_rows())
    rows = found[0]
    count = rows.history + rows.failure
    if not count:
        return Finding("ok", "are empty", found)
    return Finding(
        "problem" if count > _MANY_DEFAULT_ROWS else "warning",
        f"hold {rows.history} jobs and {rows.failure} failures, because no worker made their partitions in time: "
        "keep a worker with these tasks running, it moves the rows",
        found,
    )


def _describe(holder: SnapshotHolder) -> str:
    named = " ".join(part for part in (holder.kind, holder.name, f"pid {holder.pid}" if holder.pid else None) if part)
    known = [
        holder.user and f"user {holder.user}",
        holder.state,
        holder.since and f"since {local_time(holder.since)}",
        holder.query_start and f"last query {local_time(holder.query_start)}",
        f"{holder.xids} transactions ago",
    ]
    return f"{named} ({', '.join(part for part in known if part)})"


def _remedy(holder: SnapshotHolder) -> str:
    if holder.kind == "prepared transaction":
        return 'finish it with "commit prepared" or "rollback prepared"'
    if holder.kind == "replication slot":
        return "start its standby, or drop the slot"
    return f'end it with "select pg_terminate_backend({holder.pid})"'
