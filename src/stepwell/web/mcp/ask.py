"""Ask a dashboard for a page as JSON, without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import Message

from stepwell.errors import StepwellError
from stepwell.web.dashboard import Dashboard


class NotAnswered(StepwellError):
    """The dashboard has refused, or the database does not answer."""


async def ask(dashboard: Dashboard, path: str, query: Mapping[str, Any] | None = None) -> Any:
    """Return the data of a page. Raises `NotAnswered` with what the page says instead."""
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": urlencode(given).encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"accept", b"application/json")],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 0),
    }
    status, body = 500, b""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await dashboard(scope, receive, send)
    try:
        found = json.loads(body)
    except RecursionError:
        raise NotAnswered("a value is nested too deep to be read here: read it with psql") from None
    if status >= 400:
        raise NotAnswered(str(found.get("error", found)))
    return found
