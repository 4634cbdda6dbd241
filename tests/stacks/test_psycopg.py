"""psycopg: jobs join the transaction of its connections, and connections without one are refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from stepwell import App, ConfigError

from .every_call import EVERYTHING, NOTHING, Jobs, ajoin, found, join


@pytest.mark.parametrize("autocommit", [False, True])
async def test_every_call_takes_effect_if_and_only_if_the_transaction_commits(
    app: App, conn: psycopg.Connection[Any], autocommit: bool
) -> None:
    jobs = await Jobs(app).begin()
    with psycopg.connect(app.dsn, autocommit=autocommit) as connection:
        with connection.transaction(force_rollback=True):
            join(jobs, connection)
            assert found(conn) == NOTHING
        assert found(conn) == NOTHING
        with connection.transaction():
            join(jobs, connection)
    assert found(conn) == EVERYTHING


@pytest.mark.parametrize("autocommit", [False, True])
async def test_every_async_call_does_so_too(app: App, conn: psycopg.Connection[Any], autocommit: bool) -> None:
    jobs = await Jobs(app).begin()
    async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=autocommit) as connection:
        async with connection.transaction(force_rollback=True):
            await ajoin(jobs, connection)
            assert found(conn) == NOTHING
        assert found(conn) == NOTHING
        async with connection.transaction():
            await ajoin(jobs, connection)
    assert found(conn) == EVERYTHING


async def test_connections_that_cannot_be_used_are_refused_by_name(app: App, server_dsn: str) -> None:
    note = Jobs(app).note
    with psycopg.connect(app.dsn, autocommit=True) as autocommit, pytest.raises(ConfigError, match="autocommit"):
        note.using(connection=autocommit).enqueue(1)
    with pytest.raises(ConfigError, match="closed"):
        note.using(connection=autocommit).enqueue(1)
    with psycopg.connect(server_dsn) as other, pytest.raises(ConfigError, match="another database"):
        note.using(connection=other).enqueue(1)
    with psycopg.connect(app.dsn, client_encoding="sql_ascii") as raw:
        for _ in range(2):
            with pytest.raises(ConfigError, match="run \"set client_encoding to 'UTF8'\""):
                note.using(connection=raw).enqueue(1)
        raw.execute("set client_encoding to 'UTF8'")
        note.using(connection=raw).enqueue(1)
        raw.rollback()
    with psycopg.connect(app.dsn) as blocking, pytest.raises(ConfigError, match="which blocks"):
        await note.using(connection=blocking).aenqueue(1)
    assert await app.acount_jobs() == 0


@pytest.mark.parametrize("given", ["postgresql://shop:hunter2@127.0.0.1/shop", "host=127.0.0.1 password=hunter2"])
def test_a_connection_string_in_place_of_a_connection_is_refused_and_not_shown(app: App, given: str) -> None:
    @app.task
    def noop() -> None: ...

    with pytest.raises(ConfigError, match="connection= is a connection string, not a connection") as raised:
        noop.using(connection=given).enqueue()
    assert "hunter2" not in str(raised.value)
