"""Calls that save and delete views of the list of jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from stepwell.postgres.queries.query import Act, Query


def save_view(name: str, filters: Mapping[str, str], by: str) -> Query[bool]:
    """Returns whether the name was free."""
    return Query(
        "select stepwell.save_view(%s::text, %s::jsonb, %s::text)",
        (name, json.dumps(dict(filters)), by),
        act=Act("save", f"view {name}"),
    )


def delete_view(name: str) -> Query[bool]:
    """Returns whether there was one."""
    return Query("select stepwell.delete_view(%s::text)", (name,), act=Act("delete", f"view {name}"))
