"""Check names that were typed against those in use, and suggest the nearest one.

A queue, task or owner exists once it is named, so a mistyped name is no error in itself. All commands follow one rule:
they warn about a name that nothing uses, and fail if the command then had nothing to change.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from heapq import nlargest
from typing import Any

import psycopg

from stepwell.cli.output import warn
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.reads import NameKind
from stepwell.worker.claiming.patterns import fits, is_pattern

Typed = dict[NameKind, str | None]

_COMPARED = 20


def warn_of(connection: psycopg.Connection[Any], typed: Typed) -> None:
    for doubt in doubts(connection, typed):
        warn(doubt)


def refuse(connection: psycopg.Connection[Any], typed: Typed) -> None:
    """Raise if nothing uses one of the names: for a command that found nothing to change."""
    if found := doubts(connection, typed):
        raise StepwellError("; ".join(found))


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
            hint = nearest(name, known) or ": check the spelling, or start a worker that has it"
            said.append(f"no live worker, schedule or recent job has the {kind} {name!r}{hint}")
    return said


def nearest(name: str, known: Iterable[str]) -> str:
    """A question to end a sentence with, if a known name resembles this one. Queue patterns are not suggested."""
    matcher = SequenceMatcher(b=name, autojunk=False)

    def likeness(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.quick_ratio()

    # Fully comparing thousands of long names would take half a minute.
    likely = nlargest(_COMPARED, sorted(other for other in known if not is_pattern(other)), likeness)
    found = get_close_matches(name, likely, n=1)
    return f": did you mean {found[0]!r}?" if found else ""


def _has(known: set[str], kind: NameKind, name: str) -> bool:
    if kind != "queue":
        return name in known
    # Only workers use patterns: in any other command a pattern is a plain name, which no queue has.
    return not is_pattern(name) and any(fits(name, other) for other in known)
