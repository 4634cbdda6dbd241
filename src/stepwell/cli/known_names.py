"""Check names that were typed against those in use, and suggest the nearest one.

A queue, task or owner exists once it is named, so a mistyped name is no error in itself. All commands follow one rule:
they warn about a name that nothing uses, and fail if the command then had nothing to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from stepwell.cli.output import warn
from stepwell.errors import StepwellError
from stepwell.errors.text import nearest
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.reads import NameKind
from stepwell.postgres.queries.search import JobMatch
from stepwell.worker.claiming.patterns import fits, is_pattern

Typed = dict[NameKind, str | None]


def warn_of(connection: psycopg.Connection[Any], typed: Typed) -> None:
    for doubt in doubts(connection, typed):
        warn(doubt)


def refuse(connection: psycopg.Connection[Any], typed: Typed) -> None:
    """Raise if nothing uses one of the names: for a command that found nothing to change."""
    if found := doubts(connection, typed):
        raise StepwellError("; ".join(found))


def check_filter(database: Database, which: JobMatch, check: Callable[[psycopg.Connection[Any], Typed], None]) -> None:
    """Warn of the names in a filter that matched no job, or refuse them."""
    with database.connect() as connection:
        check(connection, {"queue": which.queue, "task": which.task, "owner": which.owner})


def doubts(connection: psycopg.Connection[Any], typed: Typed, *, served: bool = False) -> list[str]:
    """A sentence about each name that nothing uses. With `served`, a job that no worker ever claimed is no use."""
    given: list[tuple[NameKind, str]] = [(kind, name) for kind, name in typed.items() if name is not None]
    if not given:
        return []
    try:
        names = fetch(connection, queries.reads.known_names(typed.get("queue")))
    except psycopg.errors.InsufficientPrivilege:
        return []  # a producer may enqueue but not read
    said: list[str] = []
    for kind, name in given:
        known = {found.name for found in names if found.kind == kind and (found.served or not served)}
        if not _has(known, kind, name):
            # A task's name has no module: "jobs:add" and "jobs.add" are meant to be "add".
            own = name.replace(".", ":").rpartition(":")[2]
            hint = nearest(own if own in known else name, known)
            hint = hint or ": check the spelling, or start a worker that has it"
            said.append(f"no live worker, schedule or recent job has the {kind} {name!r}{hint}")
    return said


def _has(known: set[str], kind: NameKind, name: str) -> bool:
    if kind != "queue":
        return name in known
    # Only workers use patterns: in any other command a pattern is a plain name, which no queue has.
    return not is_pattern(name) and any(fits(name, other) for other in known)
