"""Every call to Postgres as a value: its text, its parameters, and how a row becomes a Python value.

There is no I/O here: `postgres.database` runs queries, sync or async, and workers run them on connections of their own.
Almost every function here calls one SQL function of the same name. All casts are written out, so that the server never
infers a type. Callers name the module: `queries.jobs.enqueue(...)`, `queries.claims.claim(...)`.

A module is loaded when it is first used: a program that only enqueues jobs needs few of them.

To add a call, write the SQL function in `stepwell/sql/functions`, then the query in the module of its theme.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from stepwell.postgres.queries.query import Query

if TYPE_CHECKING:
    from stepwell.postgres.queries import (
        audit,
        bulk,
        claims,
        events,
        failures,
        fleet,
        groups,
        health,
        jobs,
        limits,
        locks,
        logs,
        outcomes,
        reads,
        rights,
        saved_views,
        schedules,
        search,
        sizes,
        steps,
        upkeep,
    )

__all__ = [
    "Query", "audit", "bulk", "claims", "events", "failures", "fleet", "groups", "health", "jobs", "limits", "locks",
    "logs", "outcomes", "reads", "rights", "saved_views", "schedules", "search", "sizes", "steps", "upkeep",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
