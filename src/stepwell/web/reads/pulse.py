"""The pulse of the database: the time, whether it takes writes, and a text that differs after a change."""

from __future__ import annotations

from typing import Any

from stepwell.postgres.queries.query import Query, repeatable_query
from stepwell.web.reads.call import loaded


def pulse() -> Query[dict[str, Any]]:
    return repeatable_query("select stepwell.dashboard_pulse()::text", (), loaded)
