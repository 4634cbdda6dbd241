"""An assistant that asks the MCP server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from stepwell import App
from stepwell.web.mcp.bounds import MOST
from stepwell.web.mcp.server import make_mcp_server

SHOP = Path(__file__).parent.parent / "cli"
Call = Callable[..., Awaitable[Any]]
"""Calls a tool and returns its answer, or the text of its error."""


@asynccontextmanager
async def assistant(
    dsn: str, *options: str, app: str = "shop:app", cwd: Path = SHOP, heard: Any = None, **variables: str
) -> AsyncGenerator[tuple[Client, Call]]:
    """A client of a server that is a process. `heard` gets what is no answer, such as a line that is no message."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "stepwell", "mcp", app, *options],
        env={**os.environ, "STEPWELL_DATABASE_URL": dsn, **variables},
        cwd=cwd,
    )
    async with Client(server, message_handler=heard) as client:
        yield client, _caller(client)


@asynccontextmanager
async def asking(app: App) -> AsyncGenerator[Call]:
    """The same without a process of its own."""
    async with Client(make_mcp_server(app)) as client:
        yield _caller(client)


def _caller(client: Client) -> Call:
    async def call(name: str, /, **arguments: Any) -> Any:
        result: Any = await client.call_tool(name, arguments)
        text = result.content[0].text
        assert len(text) < 3 * MOST
        return text if result.is_error else json.loads(text)

    return call
