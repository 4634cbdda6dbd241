"""Tortoise: jobs join its transactions, over asyncpg and psycopg."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tortoise import Tortoise, connections, fields
from tortoise.models import Model
from tortoise.transactions import in_transaction

from stepwell import App, ConfigError

from .every_call import EVERYTHING, NOTHING, Jobs, ajoin, found

# Not by the model, which keeps the SQL of the first of the two backends.
_INSERT = 'insert into "order" (id) values (1)'


class Order(Model):
    id = fields.IntField(primary_key=True)


def orders(conn: psycopg.Connection[Any]) -> int:
    return conn.execute('select from "order"').rowcount


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(app: App, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    given = conninfo_to_dict(app.dsn)
    credentials = {
        "host": given["host"],
        "port": int(given.get("port") or 5432),
        "user": given["user"],
        "password": given.get("password"),
        "database": given["dbname"],
    }
    engine = {"engine": f"tortoise.backends.{request.param}", "credentials": credentials}
    models = {"models": [__name__], "default_connection": "default"}
    await Tortoise.init(config={"connections": {"default": engine}, "apps": {"shop": models}})
    await Tortoise.generate_schemas()
    yield connections.get("default")
    await Tortoise.close_connections()


async def test_every_call_takes_effect_if_and_only_if_the_transaction_commits(
    app: App, conn: psycopg.Connection[Any], database: Any
) -> None:
    jobs = await Jobs(app).begin()
    async with in_transaction() as transaction:
        await ajoin(jobs, transaction)
        await transaction.execute_script(_INSERT)
        assert found(conn) == NOTHING
        await transaction.rollback()
    assert (found(conn), orders(conn)) == (NOTHING, 0)
    async with in_transaction() as transaction:
        await ajoin(jobs, transaction)
        await transaction.execute_script(_INSERT)
    assert (found(conn), orders(conn)) == (EVERYTHING, 1)


async def test_a_savepoint_that_is_rolled_back_takes_its_job_with_it(app: App, database: Any) -> None:
    jobs = Jobs(app)
    async with in_transaction() as transaction:
        kept = await jobs.note.using(connection=transaction).aenqueue(1)
        async with in_transaction() as inner:
            gone = await jobs.note.using(connection=inner).aenqueue(2)
            await inner.savepoint_rollback()
    assert (await kept.aexists(), await gone.aexists()) == (True, False)


async def test_what_cannot_be_used_is_refused_by_name(app: App, database: Any) -> None:
    jobs = Jobs(app)
    with pytest.raises(ConfigError, match=r"a tortoise\..*: give the connection of a transaction"):
        await jobs.note.using(connection=database).aenqueue(1)
    async with in_transaction() as transaction:
        with pytest.raises(ConfigError, match="async"):
            jobs.note.using(connection=transaction).enqueue(1)
    with pytest.raises(ConfigError, match=r"released to its pool|in autocommit"):
        await jobs.note.using(connection=transaction).aenqueue(1)
    assert await app.acount_jobs(task="note") == 0
