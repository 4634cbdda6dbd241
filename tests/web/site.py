"""A dashboard on a real server, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

import uvicorn
from waiting import until
from werkzeug.serving import make_server

HOSTILE = "<script>alert('x')</script>"
PAGES = ["/", "/jobs", "/queues", "/tasks", "/schedules", "/workers", "/failures", "/limits", "/audit", "/database"]
OURS = {"Sec-Fetch-Site": "same-origin"}


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def said(self) -> str:
        """What the next page will say about the act."""
        return unquote(self.headers.get("set-cookie", "").partition("=")[2].partition(";")[0])[1:]


@dataclass
class Site:
    """Where a server listens. `headers` go with each request."""

    port: int
    root: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, headers)

    def json(self, path: str) -> Any:
        answer = self.ask("GET", path, None, {"Accept": "application/json"})
        assert answer.status == 200, answer.text
        return answer.json

    def post(self, path: str, form: Mapping[str, Any] | None = None, headers: dict[str, str] | None = None) -> Answer:
        body = urlencode(dict(form or {}), doseq=True)
        given = {"Content-Type": "application/x-www-form-urlencoded", **(OURS if headers is None else headers)}
        return self.ask("POST", path, body, given)

    def ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, self.root + path, body, {"Accept": "text/html", **self.headers, **named})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read().decode(), found)
        finally:
            connection.close()


@contextmanager
def served(site: Any, root: str = "") -> Generator[Site]:
    """Serve an ASGI app on a port of its own, in a thread of its own."""
    # As `stepwell web` does: a browser opens connections ahead, and uvicorn waits for one that comes as it stops.
    config = uvicorn.Config(site, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        yield Site(server.servers[0].sockets[0].getsockname()[1], root)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def served_by_wsgi(site: Any) -> Generator[Site]:
    """Serve a WSGI app, with a thread for each request."""
    server = make_server("127.0.0.1", 0, site, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Site(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
