"""Tell open pages that something may have changed. They then ask for themselves again, as anybody would.

One task reads the pulse of the database for all pages that are open, and only while there are any. A server that cannot
hold a stream for each page, which a WSGI server cannot, is asked for the pulse every few seconds instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import psycopg
from starlette.requests import Request
from starlette.responses import StreamingResponse

from stepwell.app import App
from stepwell.errors import StepwellError
from stepwell.web.reads import pulse

_EVERY = 1.0
# A server that shuts down waits for its answers to end, so a stream ends by itself. The browser asks again at once.
_LONGEST = 20.0
_PATIENCE = 3.0
POLL_EVERY = 3.0


def is_polled(request: Request) -> bool:
    """Whether a page must ask instead of listen: a stream would hold one of the few threads of a WSGI server, as a2wsgi
    tells. A page that cannot listen for another reason asks for JSON."""
    return "wsgi_environ" in request.scope or "application/json" in request.headers.get("accept", "")


class Pulse:
    """Watches the database for the open pages of one dashboard."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[asyncio.Event] = set()
        self._watching: asyncio.Task[None] | None = None
        self._state = "away"
        self._seen: str | None = None

    def stream(self, seen: str | None) -> StreamingResponse:
        """Events for one page that has `seen` this much: "changed", and "away" if the database does not answer."""
        return StreamingResponse(
            self._events(seen),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def now(self) -> dict[str, str]:
        """What a page that asks is told."""
        try:
            [found] = await self._app.database.afetch(pulse.pulse(), _PATIENCE)
        except (StepwellError, psycopg.Error, OSError):
            return {"state": "away", "seen": ""}
        return {"state": "changed", "seen": str(found["changes"])}

    async def _events(self, seen: str | None) -> AsyncGenerator[str]:
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # another server in this process, or after a fork
            self._loop, self._watching, self._listeners = loop, None, set()
        self._listeners.add(heard)
        until = loop.time() + _LONGEST
        try:
            yield "retry: 500\n\n"
            if self._watching is None or self._watching.done():
                # Compared with what this page has seen: what the last watcher saw may be newer, or long past.
                self._seen = seen
                self._watching = asyncio.create_task(self._watch())
            elif self._seen != seen or self._state == "away":
                heard.set()  # something has changed since the page was made, or while there was no stream
            while (left := until - loop.time()) > 0:
                try:
                    async with asyncio.timeout(left):
                        await heard.wait()
                except TimeoutError:
                    return
                heard.clear()
                yield f"event: {self._state}\nid: {self._seen}\ndata:\n\n"
        finally:
            self._listeners.discard(heard)

    async def _watch(self) -> None:
        while self._listeners:
            before = (self._state, self._seen)
            found = await self.now()
            self._state = found["state"]
            if self._state == "changed":
                self._seen = found["seen"]
            if (self._state, self._seen) != before:
                for listener in self._listeners:
                    listener.set()
            await asyncio.sleep(_EVERY)
