"""A way to Postgres on which notifications get lost, as behind a pooler in transaction mode."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Generator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo


@contextlib.contextmanager
def deaf(dsn: str, place: Path) -> Generator[str]:
    """The same database by another socket, which passes everything on but notifications."""
    real = conninfo_to_dict(dsn)
    name = f".s.PGSQL.{real['port']}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / name))
        server.listen()
        threading.Thread(target=_serve, args=(server, f"{real['host']}/{name}"), daemon=True).start()
        yield make_conninfo(dsn, host=str(place))
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, real: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            postgres = socket.socket(socket.AF_UNIX)
            postgres.connect(real)
            threading.Thread(target=_pass_all, args=(client, postgres), daemon=True).start()
            threading.Thread(target=_pass_most, args=(postgres, client), daemon=True).start()


def _pass_all(client: socket.socket, postgres: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(65536):
            postgres.sendall(data)
        postgres.shutdown(socket.SHUT_RDWR)


def _pass_most(postgres: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError), postgres, client, postgres.makefile("rb") as messages:
        while head := messages.read(5):
            (length,) = struct.unpack("!I", head[1:])
            body = messages.read(length - 4)
            if head[:1] != b"A":  # NotificationResponse
                client.sendall(head + body)
