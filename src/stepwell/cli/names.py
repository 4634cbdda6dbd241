"""Names that were typed: whether anything is known by them, and which known name they resemble.

A queue, task or owner comes into being by being named, so a mistyped name is no error by itself. One rule holds for all
commands: a name that nothing is known by is warned about; and if the command then changed nothing, because it acts only
on what is there, that is an error.
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
from stepwell.postgres.queries.names import NameKind
from stepwell.worker.claiming.patterns import fits, is_pattern

Typed = dict[NameKind, str | None]

_COMPARED = 20


def warn_of(connection: psycopg.Connection[Any], typed: Typed) -> None:
    """Warn of each name that nothing is known by."""
    for doubt in doubts(connection, typed):
        warn(doubt)


def refuse(connection: psycopg.Connection[Any], typed: Typed) -> None:
    """Raise if there is a name that nothing is known by: for a command that has found nothing to change."""
    if found := doubts(connection, typed):
        raise StepwellError("; ".join(found))


def doubts(connection: psycopg.Connection[Any], typed: Typed, *, served: bool = False) -> list[str]:
    """A sentence on each name that nothing is known by. With `served`, jobs that no worker has ever taken do not make
    their names known."""
    given: list[tuple[NameKind, str]] = [(kind, name) for kind, name in typed.items() if name is not None]
    if not given:
        return []
    try:
        names = fetch(connection, queries.names.known_names(typed.get("queue")))
    except psycopg.errors.InsufficientPrivilege:
        return []  # a producer may enqueue, and not look
    said: list[str] = []
    for kind, name in given:
        known = {found.name for found in names if found.kind == kind and (found.served or not served)}
        if not _has(known, kind, name):
            hint = nearest(name, known) or ": check the spelling, or start a worker that has it"
            said.append(f"no live worker, schedule or recent job has the {kind} {name!r}{hint}")
    return said


def nearest(name: str, known: Iterable[str]) -> str:
    """A question at the end of a sentence, if one of the names is like this one. Patterns of queues are passed over."""
    matcher = SequenceMatcher(b=name, autojunk=False)

    def likeness(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.quick_ratio()

    # A real comparison of thousands of long names takes half a minute.
    likely = nlargest(_COMPARED, sorted(other for other in known if not is_pattern(other)), likeness)
    found = get_close_matches(name, likely, n=1)
    return f": did you mean {found[0]!r}?" if found else ""


def _has(known: set[str], kind: NameKind, name: str) -> bool:
    if kind != "queue":
        return name in known
    # Only a worker takes a pattern: elsewhere one is just a name, which no queue has.
    return not is_pattern(name) and any(fits(name, other) for other in known)
