"""A small HTTP server in a thread, for metrics and health checks. It answers while jobs block the event loop."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stepwell.errors import ConfigError
from stepwell.telemetry.bus import logger

# A client that sends nothing, or reads nothing, must not hold a thread for ever.
_PATIENCE = 5.0
_MOST_AT_ONCE = 16
_MOST_CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Response:
    """What a page answers."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[str], Response]
"""Answers a request, given its Accept header."""


class MetricsServer:
    """Serves pages by path, on a host and port, or on a Unix socket for the supervisor of this process."""

    def __init__(self, pages: Mapping[str, Page], host: str, port: int, unix_socket: Path | None = None) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages, "at_once": threading.Semaphore(_MOST_AT_ONCE)})
        try:
            if unix_socket is not None:
                address: Any = str(unix_socket)
                self._server: ThreadingHTTPServer = _UnixServer(address, handler)
            else:
                kind = _Server6 if ":" in host else _Server
                self._server = kind((host, port), handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"metrics cannot be served on {unix_socket or f'{host}:{port}'}: {error}; give another port, and for "
                "several processes use stepwell worker --processes N --metrics-port PORT"
            ) from None
        host = f"[{host}]" if ":" in host else host
        self.url = "" if unix_socket is not None else f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="stepwell-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving. Blocks for a moment."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Otherwise a second process could listen on the same port, and take half of the scrapes.
    allow_reuse_port = False

    # Clients that come while the thread is busy wait here, and are not refused.
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        self._clients: dict[socket.socket, None] = {}
        self._clients_lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Each has a thread and a file descriptor, which are then missing to the worker. A client that sends a byte now
        # and then keeps them for as long as it likes: if there are too many, the oldest has to go.
        with self._clients_lock:
            self._clients[request] = None
            oldest = next(iter(self._clients)) if len(self._clients) > _MOST_CLIENTS else None
            if oldest is not None:
                del self._clients[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._clients_lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        logger.debug("a request for metrics failed", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(str(self.server_address))  # noqa: PTH108
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[socket.socket, Any]:
        request, _ = self.socket.accept()
        return request, ("local", 0)


class _Handler(BaseHTTPRequestHandler):
    pages: Mapping[str, Page]
    at_once: threading.Semaphore
    timeout = _PATIENCE
    server_version = "stepwell"
    sys_version = ""

    def do_GET(self) -> None:
        response = self._response()
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(response.body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _response(self) -> Response:
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            return Response(404, f"there is {', '.join(self.pages)}\n".encode())
        if not self.at_once.acquire(blocking=False):
            return Response(503, b"too many requests at once\n")
        try:
            return page(self.headers.get("Accept", ""))
        except Exception:
            logger.exception("%s failed", self.path[:100])
            return Response(500, b"failed: see the log\n")
        finally:
            self.at_once.release()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        logger.debug(format, *args)
