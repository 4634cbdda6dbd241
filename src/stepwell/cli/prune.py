"""`stepwell prune`: delete what has expired, at once instead of a little at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stepwell.cli.database import DatabaseOption, open_database
from stepwell.cli.output import say
from stepwell.cli.progress import Progress, progress
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query
from stepwell.telemetry.bus import counted

_BATCH = 5000
"""Rows in a transaction, so that no lock is held for long."""


def prune(database: DatabaseOption = None) -> None:
    """Delete expired jobs, events, keys and counters now.

    Workers do this by themselves, in small parts. This is for a database that had none for a while. It may be
    interrupted at any time, and run beside workers.
    """
    with open_database(database) as found, progress("deleting what has expired") as shown:
        # The partitions are last: stepwell.prune also deletes some rows, and does not count them.
        rows = {what: _delete(found, shown, what, query) for what, query in rows_to_prune()}
        rows["lines of logs"] = _delete_logs(found, shown)
        partitions = _drop(found, shown)
    deleted = [f"{count:,} {what}" for what, count in rows.items() if count]
    if partitions:
        deleted.insert(0, f"{counted(partitions, 'partition')} of finished jobs and failures")
    say(f"deleted {', '.join(deleted)}" if deleted else "nothing has expired")


def rows_to_prune() -> list[tuple[str, Callable[[int], Query[int]]]]:
    """What is deleted by rows, and how."""
    return [
        ("finished jobs outside of partitions", partial(queries.upkeep.prune_rows, "history_default")),
        ("failures outside of partitions", partial(queries.upkeep.prune_rows, "failure_default")),
        ("large values", partial(queries.upkeep.prune_rows, "large_value")),
        ("unique keys", queries.upkeep.prune_keys),
        ("events", queries.upkeep.prune_events),
        ("signals of jobs that have ended", queries.upkeep.prune_signals),
        ("groups", queries.upkeep.prune_groups),
        ("bulk operations", queries.upkeep.prune_bulks),
        ("ticks", queries.upkeep.prune_ticks),
        ("counters", queries.upkeep.prune_stats),
        ("rows about groups of failures", queries.upkeep.prune_failures),
        ("records of acts", queries.upkeep.prune_audit),
    ]


def _drop(database: Database, shown: Progress) -> int:
    shown.now("dropping expired partitions")
    shown.update(0)
    dropped = 0
    while names := database.fetch(queries.upkeep.prune())[0]:
        dropped += len(names)
        shown.advance(len(names))
    return dropped


def _delete_logs(database: Database, shown: Progress) -> int:
    """Delete the logs of jobs that are no longer kept. Not every job that has to be looked at has such logs."""
    shown.now("deleting lines of logs")
    shown.update(0)
    looked = _BATCH
    while looked >= _BATCH:
        [(looked, deleted)] = database.fetch(queries.upkeep.prune_logs_counted(_BATCH))
        shown.advance(deleted)
    return shown.done


def _delete(database: Database, shown: Progress, what: str, query: Callable[[int], Query[int]]) -> int:
    shown.now(f"deleting {what}")
    shown.update(0)
    while (count := database.fetch(query(_BATCH))[0]) >= _BATCH:
        shown.advance(count)
    return shown.done + count
