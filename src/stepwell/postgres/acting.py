"""Who acts: the person whose acts are recorded, in the transactions of these acts.

A context variable, so that requests that one process serves at the same time do not take each other's name.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from stepwell.errors.text import storable
from stepwell.postgres.queries.query import Act, Query

Via = Literal["web", "cli", "python"]


class Actor(msgspec.Struct, frozen=True):
    who: str
    via: Via


_actor: ContextVar[Actor | None] = ContextVar("stepwell_actor", default=None)


@contextmanager
def acting(who: str, via: Via) -> Generator[None]:
    """Record the acts in this block as those of `who`."""
    token = _actor.set(Actor(who, via))
    try:
        yield
    finally:
        _actor.reset(token)


def to_record(query: Query[Any]) -> Actor | None:
    """Return who is to be recorded with this query; None: it is no act, or nobody acts."""
    return None if query.act is None else _actor.get()


def record_of(actor: Actor, act: Act, rows: list[Any]) -> Query[None]:
    """The query that records an act, to run in its transaction. `rows` are those that the act returned."""
    bulk = act.bulk(rows) if callable(act.bulk) else act.bulk
    return Query(
        "select stepwell.record_act(%s::text, %s::text, %s::text, %s::text, %s::bigint, %s::uuid)",
        (storable(actor.who)[:200], actor.via, act.name, storable(act.target)[:2000], act.count(rows), bulk),
    )
