"""Calls about bulk operations: start, work off a chunk, stop, and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from stepwell.postgres.queries.query import Act, Query, repeatable_query

BulkAct = Literal["retry", "cancel", "run", "delete", "move"]
Found = TypeVar("Found")


class Bulk(msgspec.Struct, frozen=True):
    """A bulk operation and how far it has come. Times are as Postgres writes them in JSON."""

    id: str
    act: BulkAct
    state: Literal["running", "done", "stopped"]
    filter: dict[str, Any]
    options: dict[str, Any]
    expected: int | None
    """How many jobs somebody has confirmed. Counting stops at 10,001."""
    asked_by: str | None
    as_of: datetime
    started_at: datetime
    finished_at: datetime | None
    worked_at: datetime | None
    looked: int
    done: int
    skipped: int
    failed: int
    became: dict[str, int]
    error: str | None
    idle: float | None
    """For how many seconds nobody has worked on it; None: it has ended."""


class Bulks(msgspec.Struct, frozen=True):
    bulks: list[Bulk]
    workers: int
    """How many workers are alive."""
    now: datetime
    next: str | None
    """The operation to continue before; None: there are no older ones."""


class Chunk(msgspec.Struct, frozen=True):
    """What a chunk was of; `id` None: there was nothing to do."""

    id: str | None
    state: str | None
    next_in: float | None
    """In how many seconds there may be something to do; None: no operation runs."""


def start(
    act: str,
    which: Mapping[str, Any],
    options: Mapping[str, Any],
    expected: int | None,
    asked_by: str | None,
    as_of: datetime | str | None = None,
) -> Query[str]:
    return Query(
        "select stepwell.start_bulk(%s::text, %s::jsonb, %s::jsonb, %s::integer, %s::text, %s::timestamptz)::text",
        (act, json.dumps(which), json.dumps(options), expected, asked_by, as_of),
        # The count grows with each chunk.
        act=Act(act, f"jobs with {_text(which)}" if which else "all jobs", lambda _: 0, lambda rows: UUID(rows[0])),
    )


def _text(which: Mapping[str, Any]) -> str:
    given = {"state": ",".join(which["states"])} if which.get("states") else {}
    # Values of arguments and metadata may be secrets. The row of the operation has them, and pages hide them there.
    hidden = ("metadata", "value")
    given |= {name: "..." if name in hidden else value for name, value in which.items() if name != "states"}
    return " ".join(f"{name}={value}" for name, value in given.items())


def chunk(bulk_id: str | None = None, idle: float = 0.0) -> Query[Chunk]:
    """The next chunk of one operation; or, for workers, of any that nobody has worked on for `idle` seconds."""
    # Repeatable: a chunk that was committed is not done again.
    if bulk_id is not None:
        return repeatable_query(
            "select id::text, state, next_in from stepwell.continue_bulk(%s::uuid)", (bulk_id,), Chunk
        )
    return repeatable_query(
        "select id::text, state, next_in from stepwell.bulk_chunk(_idle => %s::double precision)", (idle,), Chunk
    )


def stop_bulk(bulk_id: str) -> Query[bool]:
    return Query("select stepwell.stop_bulk(%s::uuid)", (bulk_id,), act=Act("stop", f"bulk operation {bulk_id}"))


def preview(
    act: str, which: Mapping[str, Any], as_of: str | None = None, milliseconds: int = 500
) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.preview_bulk(%s::text, %s::jsonb, %s::integer, %s::timestamptz)::text",
        (act, json.dumps(which), milliseconds, as_of),
        json.loads,
    )


_bulks = msgspec.json.Decoder(Bulks)


def bulks(
    bulk_id: str | None = None, *, running: bool = False, limit: int = 50, before: str | None = None
) -> Query[Bulks]:
    return bulks_by(_bulks.decode, bulk_id, running=running, limit=limit, before=before)


def bulks_by(
    decode: Callable[[str], Found],
    bulk_id: UUID | str | None = None,
    *,
    running: bool = False,
    limit: int = 50,
    before: UUID | str | None = None,
) -> Query[Found]:
    """The same as `bulks`, decoded in another way. With `before`, those that were started before this one."""
    return repeatable_query(
        "select stepwell.dashboard_bulks(%s::uuid, %s::boolean, %s::integer, %s::uuid)::text",
        (bulk_id, running, limit, before),
        decode,
    )
