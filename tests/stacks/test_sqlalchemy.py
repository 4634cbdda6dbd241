"""SQLAlchemy: jobs join the transaction of its connections and sessions, over every driver."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import InternalError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from stepwell import App, ConfigError, JobExists, TooLarge

from .engines import Base, Order, async_engine, engine
from .every_call import EVERYTHING, NOTHING, Jobs, ajoin, found, join


def in_connection(engine: Engine) -> Any:
    return engine.connect()


def in_scope(engine: Engine) -> Any:
    return scoped_session(sessionmaker(engine))


def in_async_connection(engine: AsyncEngine) -> Any:
    return engine.connect()


def in_async_scope(engine: AsyncEngine) -> Any:
    return async_scoped_session(async_sessionmaker(engine), asyncio.current_task)


@pytest.mark.parametrize(
    ("driver", "make"),
    [("psycopg", Session), ("psycopg", in_connection), ("psycopg", in_scope), ("psycopg2", Session)],
)
async def test_every_call_takes_effect_if_and_only_if_the_transaction_commits(
    app: App, conn: psycopg.Connection[Any], driver: str, make: Any
) -> None:
    jobs = await Jobs(app).begin()
    joined = make(engine(app, driver))
    join(jobs, joined)
    assert found(conn) == NOTHING
    joined.rollback()
    assert found(conn) == NOTHING
    join(jobs, joined)
    joined.commit()
    joined.close()
    assert found(conn) == EVERYTHING


@pytest.mark.parametrize(
    ("driver", "make"),
    [
        ("psycopg", AsyncSession),
        ("asyncpg", AsyncSession),
        ("asyncpg", in_async_connection),
        ("psycopg", in_async_scope),
    ],
)
async def test_every_async_call_does_so_too(app: App, conn: psycopg.Connection[Any], driver: str, make: Any) -> None:
    jobs = await Jobs(app).begin()
    joined = make(async_engine(app, driver))
    if make is in_async_connection:
        await joined.start()
    await ajoin(jobs, joined)
    assert found(conn) == NOTHING
    await joined.rollback()
    assert found(conn) == NOTHING
    await ajoin(jobs, joined)
    await joined.commit()
    await joined.close()
    assert found(conn) == EVERYTHING


async def test_asyncpg_would_commit_what_goes_past_sqlalchemy_and_stepwell_does_not(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create table trap (n int)")
    jobs = Jobs(app)
    async with async_engine(app, "asyncpg").connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        # SQLAlchemy has not begun its transaction yet, so this is committed by itself.
        await raw.execute("insert into trap values (1)")
        with pytest.raises(ConfigError, match="not in a transaction"):
            await jobs.note.using(connection=raw).aenqueue(1)
        gone = await jobs.note.using(connection=connection).aenqueue(1)
        await connection.rollback()
    assert conn.execute("select n from trap").fetchall() == [(1,)]
    assert not await gone.aexists()


async def test_a_savepoint_that_is_rolled_back_takes_its_job_with_it(app: App) -> None:
    jobs = Jobs(app)
    with Session(engine(app)) as session, session.begin():
        kept = jobs.note.using(connection=session).enqueue(1)
        savepoint = session.begin_nested()
        gone = jobs.note.using(connection=session).enqueue(2)
        savepoint.rollback()
    assert (await kept.aexists(), await gone.aexists()) == (True, False)


async def test_objects_that_the_session_holds_back_are_not_sent_by_an_enqueue(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    own = engine(app)
    Base.metadata.create_all(own)
    jobs = Jobs(app)
    with Session(own) as session:
        session.add(order := Order(id=1))
        job = jobs.note.using(connection=session).enqueue(1)
        assert order in session.new
        session.commit()
    assert await job.aexists()
    assert conn.execute("select id from orders").fetchall() == [(1,)]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_refusals_of_the_database_are_stepwells_own_errors(
    app: App, conn: psycopg.Connection[Any], driver: str
) -> None:
    jobs = Jobs(app)
    conn.execute("select stepwell.set_size_limit('args', 65536)")
    holder = await jobs.once.aenqueue(1)
    async with AsyncSession(async_engine(app, driver)) as session:
        once, note = jobs.once.using(connection=session), jobs.note.using(connection=session)
        savepoint = await session.begin_nested()
        with pytest.raises(JobExists) as exists:
            await once.aenqueue(1)
        assert exists.value.job == holder
        await savepoint.rollback()
        savepoint = await session.begin_nested()
        with pytest.raises(TooLarge, match="item 1: "):
            await note.aenqueue_many([{"n": 1}, {"n": 1, "text": "x" * 70_000}])
        await savepoint.rollback()
        kept = await note.aenqueue(1)
        await session.commit()
    assert await kept.aexists()


async def test_psycopg2_has_the_same_errors(app: App) -> None:
    jobs = Jobs(app)
    await jobs.once.aenqueue(1)
    with Session(engine(app, "psycopg2")) as session:
        with pytest.raises(JobExists):
            jobs.once.using(connection=session).enqueue(1)
        # The transaction is aborted, as by any error. That is for the caller, who gets SQLAlchemy's own error.
        with pytest.raises(InternalError, match="current transaction is aborted"):
            jobs.once.using(connection=session).enqueue(2)


async def test_a_session_whose_flush_failed_says_so_itself(app: App, conn: psycopg.Connection[Any]) -> None:
    own = engine(app)
    Base.metadata.create_all(own)
    conn.execute("insert into orders values (1, false)")
    with Session(own) as session:
        session.add(Order(id=1))
        with pytest.raises(Exception, match="duplicate key"):
            session.flush()
        with pytest.raises(PendingRollbackError):
            Jobs(app).note.using(connection=session).enqueue(1)


async def test_the_database_of_a_pooled_connection_is_looked_at_once(app: App) -> None:
    jobs = Jobs(app)
    own = create_engine(app.url.replace("postgresql://", "postgresql+psycopg://", 1), pool_size=1)
    statements: list[str] = []
    event.listen(own, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for n in range(3):
        with Session(own) as session, session.begin():
            jobs.note.using(connection=session).enqueue(n)
    own.dispose()
    assert ["pg_control_system" in statement for statement in statements] == [True, False, False, False]


async def test_objects_that_cannot_be_used_are_refused_by_name(app: App, server_dsn: str) -> None:
    jobs = Jobs(app)

    def refused(connection: object, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            jobs.note.using(connection=connection).enqueue(1)

    own = engine(app)
    refused(own, r"sqlalchemy\.engine\.base\.Engine: give a connection of it")
    refused(sessionmaker(own), r"sessionmaker: give a session that it makes")
    refused(async_engine(app), "AsyncEngine: give a connection of it")
    with own.connect() as connection:
        pass
    refused(connection, "connection= is closed")
    with Session(engine(app, isolation_level="AUTOCOMMIT")) as session:
        refused(session, "is in autocommit")
    with own.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        refused(connection, "is in autocommit")
    lite = create_engine("sqlite://")
    with lite.connect() as connection:
        refused(connection, "is to a database of sqlite")
    lite.dispose()
    with Session() as session:
        refused(session, r"has no engine, or one for each class: give the connection, session\.connection")
    with Session(engine(App(server_dsn))) as session:
        refused(session, "is to another database, 'postgres'")
        assert session.scalar(text("select 1")) == 1
    async with AsyncSession(async_engine(app)) as asession:
        refused(asession, "AsyncSession, which is async: await the call that begins with 'a'")
    with Session(own) as session, pytest.raises(ConfigError, match="which blocks: use the call without the 'a'"):
        await jobs.note.using(connection=session).aenqueue(1)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_async_ones_are_refused_in_the_same_way(app: App, server_dsn: str, driver: str) -> None:
    jobs = Jobs(app)
    async with async_engine(app, driver).connect() as connection:
        pass
    with pytest.raises(ConfigError, match="connection= is closed"):
        await jobs.note.using(connection=connection).aenqueue(1)
    for other, said in (
        (async_engine(app, driver, isolation_level="AUTOCOMMIT"), "is in autocommit"),
        (async_engine(App(server_dsn), driver), "is to another database, 'postgres'"),
    ):
        async with AsyncSession(other) as session:
            with pytest.raises(ConfigError, match=said):
                await jobs.note.using(connection=session).aenqueue(1)


async def test_an_asyncpg_session_of_another_event_loop_is_refused(app: App) -> None:
    jobs = Jobs(app)
    async with AsyncSession(async_engine(app, "asyncpg")) as session:
        await session.execute(text("select 1"))

        def elsewhere() -> None:
            asyncio.run(cast("Any", jobs.note.using(connection=session).aenqueue(1)))

        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(elsewhere)


async def test_an_app_that_cannot_reach_its_own_database_still_joins_the_callers(
    app: App, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEPWELL_DATABASE_URL", raising=False)
    for blind in (App(), App("postgresql://nobody@127.0.0.1:1/nowhere")):
        with Session(engine(app)) as session, session.begin():
            Jobs(blind).note.using(connection=session).enqueue(1)
    assert found(conn)["jobs"] == (2,)
