"""A real site on loopback, and a client that reads its answers as a browser does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from waiting import auntil


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    id: str
    name: str
    data: Any


@asynccontextmanager
async def serve(site: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve an ASGI site with uvicorn until the block ends, and yield a client of it."""
    config = uvicorn.Config(site, host="127.0.0.1", port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())  # pyright: ignore[reportPrivateUsage] `serve` takes over signals
    try:
        await auntil(lambda: server.started or serving.done())
        if serving.done():
            raise RuntimeError("the site did not start")
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


async def events(client: httpx.AsyncClient, path: str, last_event_id: str | None = None) -> AsyncGenerator[Event]:
    """The events of a stream, until the server closes it."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    async with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if line and name and not line.startswith(":"):
                fields[name] = value
            elif not line and fields:
                yield Event(fields["id"], fields["event"], json.loads(fields["data"]))
                fields = {}
