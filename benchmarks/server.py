"""The Postgres of a run: one server for all that is compared, with its durability as it comes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql

from stepwell.embedded import EmbeddedPostgres

# What an operator would set on a machine of a few gigabytes. Nothing here touches durability.
_SETTINGS: dict[LiteralString, str] = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "off",
}
_SHOWN = ["server_version", "fsync", "synchronous_commit", "full_page_writes", *_SETTINGS]


class Server:
    """A server, and fresh databases in it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @contextmanager
    def database(self) -> Generator[str]:
        """An empty database, after a checkpoint, so that nobody pays for what ran before."""
        name = f"bench_{uuid4().hex[:8]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            connection.execute("checkpoint")
        try:
            yield self.dsn.replace("/postgres?", f"/{name}?")
        finally:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    def settings(self) -> dict[str, str]:
        """What a reader of the results has to know of it."""
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute("select n, current_setting(n) from unnest(%s::text[]) as n", (_SHOWN,)))


@contextmanager
def running() -> Generator[Server]:
    """An embedded server of this run's own."""
    place = Path(tempfile.mkdtemp(prefix="swb"))
    place.chmod(0o755)  # run by root, Postgres is somebody else
    server = EmbeddedPostgres(place / "pg")
    try:
        with psycopg.connect(server.start(), autocommit=True) as connection:
            for name, value in _SETTINGS.items():
                connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        server.stop()
        yield Server(server.start())
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
