"""Bulk operations: which there are, what one would change, and the jobs of an export."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from stepwell.jobs.bulk_operation import as_filter
from stepwell.postgres.queries.bulk import BulkAct, bulks_by
from stepwell.postgres.queries.query import Query, repeatable_query
from stepwell.values.job import FINISHED, LIVE
from stepwell.values.redaction import HIDDEN, Redaction
from stepwell.web.reads.call import loaded
from stepwell.web.reads.jobs import Search

STATES: dict[BulkAct, tuple[str, ...]] = {
    "retry": ("failed", "cancelled", "scheduled"),
    "run": ("scheduled", "waiting"),
    "move": ("scheduled", "ready", "blocked"),
    "cancel": LIVE,
    "delete": FINISHED,
}
"""Which buttons a list of jobs in a state has. The database decides: stepwell.bulk_states."""


def filter_of(which: Search) -> Mapping[str, Any]:
    """The filter of a bulk operation on all jobs that a search finds."""
    return as_filter(
        states=None if which.state is None else [which.state],
        queue=which.queue,
        task=which.task,
        owner=which.owner,
        worker=which.worker,
        metadata=None if which.metadata is None else json.loads(which.metadata),
        argument=which.argument,
        value=which.value,
        error=which.error,
        after=which.after,
        until=which.until,
        failure=which.failure,
    )


def bulks(
    bulk_id: UUID | None = None, *, running: bool = False, limit: int = 50, before: UUID | None = None
) -> Query[dict[str, Any]]:
    return bulks_by(loaded, bulk_id, running=running, limit=limit, before=before)


def shown_bulk(found: dict[str, Any], redaction: Redaction) -> dict[str, Any]:
    """An operation as it may be shown."""
    found["filter"] = shown_filter(found["filter"], redaction)
    return found


def shown_filter(given: Mapping[str, Any], redaction: Redaction) -> dict[str, Any]:
    """The filter of an operation as it may be shown: it may name what is hidden here, if it comes from elsewhere."""
    shown = dict(redaction.apply(given))
    if redaction and "value" in shown and _hides(shown.get("argument"), redaction):
        shown["value"] = HIDDEN
    return shown


def _hides(argument: str | None, redaction: Redaction) -> bool:
    """Whether what an argument was searched for may be hidden; None: any argument."""
    return argument is None or redaction.hides_path(argument)


def rows(ids: Sequence[str]) -> Query[list[dict[str, Any]]]:
    """The jobs with these ids, whole, for an export."""
    return repeatable_query("select stepwell.dashboard_export(%s::uuid[])::text", (list(ids),), loaded)
