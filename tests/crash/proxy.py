"""A proxy between a worker and Postgres that can lose what a real network loses, at a moment of the test's choosing.

It reads just enough of the protocol to know which statement a message runs, prepared or not.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Loss = Literal["request", "reply", "client", "late", "network", "long reply"]
"""What is lost: the request, which never reaches the server; the reply, once the server has given it; the client, at
once, while the server is still at work, or, if late, before the server has the request, which it gets by `deliver`; or
the whole network, as by `part`, once the server has the request, or once it has begun a reply that is longer than the
sockets on the way can hold."""

_LONG = 65536


class Proxy:
    """Listens in a directory, as Postgres does, and passes everything on, but for what it was told to lose."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self._upstream = f"{conninfo_to_dict(dsn)['host']}/.s.PGSQL.5432"
        self.dsn = make_conninfo(dsn, host=str(directory))
        self._rules: dict[str, Loss] = {}
        self.lost = threading.Event()
        self.delivering = threading.Event()
        self._parted = threading.Event()
        self._lock = threading.Lock()
        self._sessions: list[_Session] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen(100)
        self._listener.settimeout(0.1)
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def lose(self, what: Loss, *statements: str) -> None:
        """Lose this the next time that statements with these texts in them are run, and cut their connections.
        `lost` is set when all of them were."""
        self.lost.clear()
        self._rules = dict.fromkeys(statements, what)

    def deliver(self) -> None:
        """Let the server have the requests that are late."""
        self.delivering.set()

    def part(self) -> None:
        """From now on everything is swallowed, and nobody is told."""
        self._parted.set()
        for session in self._sessions:
            session.silent = True

    def heal(self) -> None:
        """Let new connections through. Those that were there, or were tried meanwhile, stay silent for ever."""
        self._parted.clear()

    def time_out(self) -> None:
        """End the silent connections on the server's side, as its network does in the end."""
        for session in self._sessions:
            session.time_out()

    def close(self) -> None:
        self._closing = True
        self.delivering.set()
        self._accepting.join()
        for session in self._sessions:
            session.close()
        self._listener.close()

    def take_rule(self, text: str, *, replying: bool = False) -> Loss | None:
        """What to lose of a statement, when it is asked or while its long reply is given. Each rule is used once."""
        with self._lock:
            for statement, loss in self._rules.items():
                if statement in text and (loss == "long reply") == replying:
                    return self._rules.pop(statement)
            return None

    def was_lost(self) -> None:
        """What a rule said has happened."""
        if not self._rules:
            self.lost.set()

    def _accept(self) -> None:
        while not self._closing:
            # Not all kernels wake a thread in accept when its socket is shut.
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                with contextlib.suppress(OSError):
                    server.connect(self._upstream)
                self._sessions.append(_Session(self, client, server, silent=self._parted.is_set()))


class _Session:
    """One connection: a thread each way."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket, *, silent: bool) -> None:
        self._proxy = proxy
        self.silent = silent
        self._client = client
        self._server = server
        self._statements: dict[bytes, str] = {}
        self._losing: Loss | None = None
        self._asked = ""
        self._pumps = [threading.Thread(target=pump, daemon=True) for pump in (self._requests, self._replies)]
        for pump in self._pumps:
            pump.start()

    def time_out(self) -> None:
        if self.silent:
            _shut(self._server)

    def close(self) -> None:
        for end in (self._client, self._server):
            _shut(end)
        for pump in self._pumps:
            pump.join()
        for end in (self._client, self._server):
            end.close()

    def _requests(self) -> None:
        buffer, late, started = b"", b"", False
        with contextlib.suppress(OSError):
            while chunk := self._client.recv(65536):
                if self.silent:
                    continue
                buffer += chunk
                while (frame := _frame(buffer, typed=started)) is not None:
                    buffer = buffer[len(frame) :]
                    if started and self._losing is None and (text := self._runs(frame)):
                        self._asked = text
                        self._losing = self._proxy.take_rule(text)
                        if self._losing == "request":
                            self._cut(self._client, self._server)
                            return
                    if self._losing == "late":
                        late += frame
                        if frame[:1] in b"QS":
                            self._cut(self._client)
                            self._proxy.delivering.wait()
                            self._server.sendall(late)
                            return
                        continue
                    self._server.sendall(frame)
                    # A statement is complete, and will be answered, with its Sync.
                    if self._losing == "client" and frame[:1] in b"QS":
                        self._cut(self._client)
                        return
                    if self._losing == "network" and frame[:1] in b"QS":
                        self._proxy.part()
                        self._proxy.was_lost()
                    started = True
        if self._losing is None and not self.silent:
            _shut(self._server)

    def _replies(self) -> None:
        given = 0
        with contextlib.suppress(OSError):
            while chunk := self._server.recv(65536):
                if self.silent:
                    return
                given = 0 if chunk[-6:-1] == b"Z\0\0\0\5" else given + len(chunk)
                if given > _LONG and self._proxy.take_rule(self._asked, replying=True):
                    self._proxy.part()
                    self._proxy.was_lost()
                    return
                if self._losing is None:
                    self._client.sendall(chunk)
                # ReadyForQuery, always the last of a reply: five bytes and the state of the transaction.
                elif chunk[-6:-1] == b"Z\0\0\0\5" and self._losing == "reply":
                    self._cut(self._client, self._server)
                    return
        _shut(self._client)

    def _runs(self, frame: bytes) -> str:
        """The statement that a message asks to run, if it does."""
        kind, body = frame[:1], frame[5:]
        if kind == b"Q":
            return body[:-1].decode()
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._statements[name] = text.decode()
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._statements.get(name, "")
        return ""

    def _cut(self, *ends: socket.socket) -> None:
        for end in ends:
            _shut(end)
        self._proxy.was_lost()


def _frame(buffer: bytes, *, typed: bool) -> bytes | None:
    """The first message in the buffer, if it is all there. The one that opens a session has no type."""
    start = 1 if typed else 0
    if len(buffer) < start + 4:
        return None
    (length,) = struct.unpack_from("!i", buffer, start)
    return buffer[: start + length] if len(buffer) >= start + length else None


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
