"""`app.url`: other libraries connect by it to the database of the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from stepwell import App, ConfigError

_connect = cast("Any", asyncpg).connect


async def database_by_each(url: str) -> set[str]:
    """The names of the databases that psycopg, asyncpg and SQLAlchemy, sync and async, come to."""
    connection = await _connect(url)
    by_asyncpg = await connection.fetchval("select current_database()")
    await connection.close()
    with psycopg.connect(url) as conn:
        row = conn.execute("select current_database()").fetchone()
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool)
    with engine.connect() as plain:
        by_sqlalchemy = plain.execute(text("select current_database()")).scalar_one()
    async_engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1), poolclass=NullPool)
    async with async_engine.connect() as other:
        by_both = (await other.execute(text("select current_database()"))).scalar_one()
    return {by_asyncpg, *(row or ()), by_sqlalchemy, by_both}


async def test_every_library_connects_by_it(app: App, dsn: str) -> None:
    assert await database_by_each(app.url) == {conninfo_to_dict(dsn)["dbname"]}
    assert "keepalives" in app.dsn
    assert "keepalives" not in app.url


async def test_a_setting_that_was_given_is_kept(dsn: str) -> None:
    app = App(make_conninfo(dsn, application_name="shop", options="-c work_mem=7MB"))
    connection = await _connect(app.url)
    assert await connection.fetchval("show application_name") == "shop"
    assert await connection.fetchval("show work_mem") == "7MB"
    await connection.close()


async def test_a_database_with_a_hostile_name_is_found(server_dsn: str) -> None:
    name = "a/b?c#d%40 e@[f]&=+'\"ä"
    with psycopg.connect(server_dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            assert await database_by_each(App(make_conninfo(server_dsn, dbname=name)).url) == {name}
        finally:
            conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.mark.slow
async def test_an_embedded_postgres_is_started_and_migrated_for_it(open_dir: Path) -> None:
    app = App(f"embedded:{open_dir / 'a b'}")
    try:
        connection = await _connect(app.url)
        assert await connection.fetchval("select stepwell.schema_version()") > 0
        await connection.close()
    finally:
        app.close()


def test_without_a_database_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPWELL_DATABASE_URL", raising=False)
    with pytest.raises(ConfigError, match="no database is configured"):
        _ = App().url
