"""Databases for tests, copied from a template."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell.postgres.migrate import migrate

MIGRATED = "stepwell_template"
"""The template of databases that are migrated: to copy it takes a hundredth of the time."""


def make_template(dsn: str) -> None:
    """Make the template, on a server without one."""
    with psycopg.connect(dsn, autocommit=True) as server:
        create_database(server, MIGRATED, "template1")
    own = make_conninfo(dsn, dbname=MIGRATED)
    with psycopg.connect(own, autocommit=True) as connection:
        migrate(connection)
        # Migrations leave catalogs full of dead rows, which every session of every test would read past: a sixth of
        # what a worker costs the server. The tables stay as they are, of which Postgres knows nothing.
        catalogs = connection.execute(
            "select c.oid::regclass::text from pg_class c"
            " where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'r' and not c.relisshared"
        ).fetchall()
        for (name,) in catalogs:
            connection.execute(sql.SQL("vacuum (full, freeze) {}").format(sql.Identifier("pg_catalog", name)))
    # A first session writes the file from which others read what they need of the catalogs.
    psycopg.connect(own).close()


def create_database(server: psycopg.Connection[Any], name: str, template: str = MIGRATED) -> None:
    # Twice as fast as by way of the WAL; before 15 there was nothing else.
    strategy = sql.SQL(" strategy file_copy" if server.info.server_version >= 150000 else "")
    server.execute(
        sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template)) + strategy
    )


def drop_database(server: psycopg.Connection[Any], name: str) -> None:
    server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
