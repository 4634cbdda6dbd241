"""A dashboard within a WSGI site, such as one on Django or Flask, which says who the user is. Pages poll there."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from stepwell.errors import ConfigError
from stepwell.web.access import User

_USER = "stepwell.user"
_CANCEL = "stepwell.cancel"


class WsgiDashboard:
    """A dashboard as a WSGI app. It runs on an event loop of its own, in a thread of its own, of each process."""

    def __init__(self, dashboard: ASGIApp) -> None:
        self._dashboard = dashboard
        self._lock = threading.Lock()
        self._made: tuple[int, Any] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> WsgiBody:
        # A copy: nothing of ours is to be written into the one of the server.
        own = dict(environ)
        return WsgiBody(self._of_this_process()(own, start_response), own)

    def _of_this_process(self) -> Any:
        # A server may fork after the first request, and a thread does not survive that.
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), _converter()(self._answer))
            return self._made[1]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        scope["wsgi_environ"][_CANCEL] = lambda: loop.call_soon_threadsafe(task.cancel)
        await self._dashboard(scope, receive, send)


class WsgiBody:
    """The parts of an answer, as they come: the first is here at once, so its status and headers are known. `close`
    ends a request whose answer nobody reads to its end, such as an export that was broken off: a2wsgi would have it
    wait for ever."""

    def __init__(self, parts: Generator[bytes], environ: dict[str, Any]) -> None:
        self._parts = parts
        self._first: bytes | None = next(parts, b"")
        self._environ = environ
        # A site by ASGI reads a part in one thread, and may close in another.
        self._reading = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._reading:
            part, self._first = self._first, None
            return next(self._parts) if part is None else part

    def close(self) -> None:
        with self._reading:
            self._parts.close()
        if (cancel := self._environ.get(_CANCEL)) is not None:
            cancel()


def is_file(disposition: str | None) -> bool:
    """Whether an answer with this header Content-Disposition is a file, which may be large. Other answers are small."""
    return (disposition or "").startswith("attachment")


def _converter() -> Any:
    try:
        from a2wsgi import ASGIMiddleware
    except ImportError:
        raise ConfigError("the dashboard needs a2wsgi in a WSGI site: pip install a2wsgi") from None
    return ASGIMiddleware


def with_user(environ: dict[str, Any], user: User | None) -> dict[str, Any]:
    """The environ with the user that the site knows. No client can set this key."""
    return {**environ, _USER: user}


def user_of_site(request: Request) -> User | None:
    """The auth function of a dashboard whose site says who the user is."""
    return request.scope.get("wsgi_environ", {}).get(_USER)
