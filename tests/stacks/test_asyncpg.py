"""asyncpg: jobs join the transaction of its connections, and connections without one are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import psycopg
import pytest

from stepwell import App, ConfigError, DatabaseError, JobExists, TooLarge

from .every_call import EVERYTHING, HOSTILE, NOTHING, Jobs, ajoin, found

_asyncpg = cast("Any", asyncpg)


@pytest.fixture
async def connection(app: App) -> AsyncIterator[Any]:
    connection = await _asyncpg.connect(app.url)
    yield connection
    await connection.close()


async def test_every_call_takes_effect_if_and_only_if_the_transaction_commits(
    app: App, conn: psycopg.Connection[Any], connection: Any
) -> None:
    jobs = await Jobs(app).begin()
    transaction = connection.transaction()
    await transaction.start()
    await ajoin(jobs, connection)
    assert found(conn) == NOTHING
    await transaction.rollback()
    assert found(conn) == NOTHING
    async with connection.transaction():
        await ajoin(jobs, connection)
    assert found(conn) == EVERYTHING


async def in_savepoint(connection: Any, call: Any) -> None:
    async with connection.transaction():
        await call


async def test_a_savepoint_that_is_rolled_back_takes_its_job_with_it(app: App, connection: Any) -> None:
    jobs = Jobs(app)
    async with connection.transaction():
        kept = await jobs.note.using(connection=connection).aenqueue(1)
        inner = connection.transaction()
        await inner.start()
        gone = await jobs.note.using(connection=connection).aenqueue(2)
        await inner.rollback()
    assert (await kept.aexists(), await gone.aexists()) == (True, False)


async def test_a_connection_of_a_pool_is_taken_and_looked_at_once(app: App, conn: psycopg.Connection[Any]) -> None:
    jobs = Jobs(app)
    statements: list[str] = []
    connection: Any = None

    def log(record: Any) -> None:
        statements.append(record.query)

    async with _asyncpg.create_pool(app.url, min_size=1, max_size=1) as pool:
        for n in range(3):
            async with pool.acquire() as connection, connection.transaction():
                with connection.query_logger(log):
                    await jobs.note.using(connection=connection).aenqueue(n)
        with pytest.raises(ConfigError, match=r"asyncpg\.pool\.Pool: give a connection of it"):
            await jobs.note.using(connection=pool).aenqueue(1)
        with pytest.raises(ConfigError, match="released to its pool"):
            await jobs.note.using(connection=connection).aenqueue(1)
    assert ["pg_control_system" in statement for statement in statements] == [True, False, False, False]
    assert found(conn)["jobs"] == (3,)


async def test_refusals_of_the_database_are_stepwells_own_errors(app: App, connection: Any) -> None:
    jobs = Jobs(app)
    holder = await jobs.once.aenqueue(1)
    await connection.execute("select stepwell.set_size_limit('args', 65536)")
    async with connection.transaction():
        with pytest.raises(JobExists) as exists:
            await in_savepoint(connection, jobs.once.using(connection=connection).aenqueue(1))
        assert exists.value.job == holder
        large = jobs.note.using(connection=connection).aenqueue_many([{"n": 1}, {"n": 1, "text": "x" * 70_000}])
        with pytest.raises(TooLarge, match="item 1: "):
            await in_savepoint(connection, large)
        kept = await jobs.note.using(connection=connection).aenqueue(1)
    assert await kept.aexists()


async def test_an_error_that_the_caller_handles_is_the_drivers_own(app: App, connection: Any) -> None:
    jobs = Jobs(app)
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(_asyncpg.DivisionByZeroError):
        await connection.execute("select 1/0")
    with pytest.raises(_asyncpg.InFailedSQLTransactionError):
        await jobs.note.using(connection=connection).aenqueue(1)
    await transaction.rollback()


async def test_a_missing_schema_names_the_command(empty_dsn: str) -> None:
    app = App(empty_dsn)
    connection = await _asyncpg.connect(app.url)
    async with connection.transaction():
        with pytest.raises(DatabaseError, match='run "stepwell migrate"'):
            await Jobs(app).note.using(connection=connection).aenqueue(1)
    await connection.close()
    await app.aclose()


async def test_connections_that_cannot_be_used_are_refused_by_name(app: App, connection: Any, server_dsn: str) -> None:
    jobs = Jobs(app)
    with pytest.raises(ConfigError, match=r"not in a transaction, and asyncpg commits each statement"):
        await jobs.note.using(connection=connection).aenqueue(1)
    with pytest.raises(ConfigError, match=r"an asyncpg\.connection\.Connection, which is async: await the call"):
        jobs.note.using(connection=connection).enqueue(1)
    other = await _asyncpg.connect(App(server_dsn).url)
    async with other.transaction():
        with pytest.raises(ConfigError, match="connection= is to another database, 'postgres': the jobs of this app"):
            await jobs.note.using(connection=other).aenqueue(1)
        # It is refused before anything is sent that could abort the transaction.
        assert await other.fetchval("select 1") == 1
    await other.close()
    with pytest.raises(ConfigError, match="is closed"):
        await jobs.note.using(connection=other).aenqueue(1)


async def test_a_connection_of_another_event_loop_is_refused(app: App, connection: Any) -> None:
    jobs = Jobs(app)

    def elsewhere() -> None:
        asyncio.run(cast("Any", jobs.note.using(connection=connection).aenqueue(1)))

    async with connection.transaction():
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(elsewhere)


async def test_types_that_the_user_has_taught_the_connection_do_not_matter(app: App, connection: Any) -> None:
    jobs = await Jobs(app).begin()
    for kind in ("json", "jsonb", "uuid"):
        decode = str if kind == "uuid" else json.loads
        await connection.set_type_codec(kind, encoder=str, decoder=decode, schema="pg_catalog")
    async with connection.transaction():
        made = await app.aschedule_task(jobs.note, "1h", args={"n": 1, "text": HOSTILE}, connection=connection)
    assert made.args == {"n": 1, "text": HOSTILE}
