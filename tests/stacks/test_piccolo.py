"""Piccolo: jobs join its transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from piccolo.engine.postgres import PostgresEngine
from psycopg.conninfo import conninfo_to_dict

from stepwell import App, ConfigError

from .every_call import EVERYTHING, NOTHING, Jobs, ajoin, found


@pytest.fixture(params=["pool", "connection"])
async def engine(app: App, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    given = conninfo_to_dict(app.dsn)
    config = {name: given[name] for name in ("host", "port", "user", "password") if name in given}
    engine: Any = PostgresEngine(config={**config, "database": given["dbname"]}, extensions=(), log_queries=False)
    if request.param == "pool":
        await engine.start_connection_pool(min_size=1, max_size=2)
    yield engine
    if request.param == "pool":
        await engine.close_connection_pool()


async def test_every_call_takes_effect_if_and_only_if_the_transaction_commits(
    app: App, conn: psycopg.Connection[Any], engine: Any
) -> None:
    jobs = await Jobs(app).begin()
    async with engine.transaction() as transaction:
        await ajoin(jobs, transaction)
        assert found(conn) == NOTHING
        await transaction.rollback()
    assert found(conn) == NOTHING
    async with engine.transaction() as transaction:
        await ajoin(jobs, transaction)
    assert found(conn) == EVERYTHING


async def test_a_savepoint_that_is_rolled_back_takes_its_job_with_it(app: App, engine: Any) -> None:
    jobs = Jobs(app)
    async with engine.transaction() as transaction:
        kept = await jobs.note.using(connection=transaction).aenqueue(1)
        savepoint = await transaction.savepoint()
        gone = await jobs.note.using(connection=transaction).aenqueue(2)
        await savepoint.rollback_to()
    assert (await kept.aexists(), await gone.aexists()) == (True, False)


async def test_what_cannot_be_used_is_refused_by_name(app: App, engine: Any) -> None:
    jobs = Jobs(app)
    for wrong in (engine, engine.transaction()):
        with pytest.raises(ConfigError, match=r"a piccolo\..*: give a transaction"):
            await jobs.note.using(connection=wrong).aenqueue(1)
    async with engine.transaction() as transaction:
        with pytest.raises(ConfigError, match="async"):
            jobs.note.using(connection=transaction).enqueue(1)
    with pytest.raises(ConfigError, match="is closed, or was released"):
        await jobs.note.using(connection=transaction).aenqueue(1)
    assert await app.acount_jobs(task="note") == 0
