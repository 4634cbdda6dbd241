"""Databases for tests: a server for the run, a migrated template, and a copy of it for each test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell import App
from stepwell.embedded import EmbeddedPostgres
from stepwell.postgres.address import Address
from stepwell.postgres.migrate import migrate


class DatabaseServer:
    """A Postgres server that tests may make databases on."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any]) -> None:
        self._dsn = dsn
        self._connection = connection
        self._template = f"stepwell_test_{os.getpid()}_{uuid4().hex[:8]}"

    @classmethod
    @contextmanager
    def open(cls, url: str | None) -> Generator[DatabaseServer]:
        """Use the server of this URL, or start one."""
        if url is not None:
            address = Address(url)
            try:
                with cls._made(address.dsn) as server:
                    yield server
            finally:
                address.leave()
            return
        # A short path, which every user may enter: root's Postgres runs as another user.
        place = Path(tempfile.mkdtemp(prefix="sw"))
        place.chmod(0o755)
        embedded = EmbeddedPostgres(place / "pg")
        try:
            with cls._made(embedded.start()) as server:
                yield server
        finally:
            embedded.stop()
            shutil.rmtree(place, ignore_errors=True)

    @classmethod
    @contextmanager
    def _made(cls, dsn: str) -> Generator[DatabaseServer]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            server = cls(dsn, connection)
            server._create(server._template)
            try:
                with psycopg.connect(make_conninfo(dsn, dbname=server._template), autocommit=True) as template:
                    migrate(template)
                yield server
            finally:
                server._drop(server._template)

    @contextmanager
    def used_by(self, app: App) -> Generator[None]:
        """Give the app an empty database for the length of this block."""
        name = f"{self._template}_{uuid4().hex[:8]}"
        self._create(name, self._template)
        before = app.database.address.given
        app.close()
        app.database.move_to(make_conninfo(self._dsn, dbname=name))
        try:
            yield
        finally:
            app.close()
            app.database.move_to(before)
            self._drop(name)

    def _create(self, name: str, template: str = "template1") -> None:
        create = sql.SQL("create database {} template {}")
        self._connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))

    def _drop(self, name: str) -> None:
        self._connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
