"""Calls that read the acts of people."""

from __future__ import annotations

import json
from typing import Any

from stepwell.postgres.queries.query import Query, repeatable_query


def acts(who: str | None, act: str | None, before: int | None, limit: int) -> Query[dict[str, Any]]:
    """A page of acts, the newest first, and the row to continue before."""
    return repeatable_query(
        "select stepwell.dashboard_audit(%s::text, %s::text, %s::bigint, %s::integer)::text",
        (who, act, before, limit),
        json.loads,
    )
