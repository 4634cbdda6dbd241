"""Every call to Postgres as a value: its text, its parameters, and how a row becomes a Python value.

There is no I/O here: `postgres.database` runs queries, sync or async, and workers run them on connections of their own.
Almost every function here calls one SQL function of the same name. All casts are written out, so that the server never
infers a type. Callers name the module: `queries.jobs.enqueue(...)`, `queries.claims.claim(...)`.

To add a call, write the SQL function in `stepwell/sql/functions`, then the query in the module of its theme.
"""

from stepwell.postgres.queries import (
    claims,
    events,
    fleet,
    groups,
    health,
    jobs,
    limits,
    locks,
    outcomes,
    reads,
    rights,
    schedules,
    search,
    sizes,
    steps,
    upkeep,
)
from stepwell.postgres.queries.query import Query

__all__ = [
    "Query", "claims", "events", "fleet", "groups", "health", "jobs", "limits", "locks", "outcomes", "reads", "rights",
    "schedules", "search", "sizes", "steps", "upkeep",
]  # fmt: skip
