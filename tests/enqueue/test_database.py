"""A database that is wrong, away, or not ours: what the app says."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from waiting import until

from stepwell import App, ConfigError, DatabaseError, DatabaseTimeout, SchemaMismatch, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.enqueue import DatabaseSilent


def test_no_database_names_the_three_ways_to_configure_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPWELL_DATABASE_URL", raising=False)
    with pytest.raises(ConfigError) as caught:
        App().__enter__()
    for way in ('App("postgresql://', "STEPWELL_DATABASE_URL", 'App("embedded")'):
        assert way in str(caught.value)


def test_the_environment_names_the_database(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_DATABASE_URL", dsn)
    with App() as app:
        assert conninfo_to_dict(app.dsn)["dbname"] == conninfo_to_dict(dsn)["dbname"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://nobody-there.invalid/db", "failed to resolve host"),
        ("postgresql://postgres@127.0.0.1:1/db", "is Postgres running there"),
        ("not a url at all", "write it as .postgresql://"),
        ("mysql://root:s3cret@localhost/db", "write it as .postgresql://"),
        ("host=/nowhere dbname=x", "is Postgres running there"),
    ],
)
def test_a_wrong_url_is_explained(url: str, said: str) -> None:
    with pytest.raises((ConfigError, DatabaseError), match=said) as caught:
        App(url, call_timeout=0.2).__enter__()
    assert "s3cret" not in str(caught.value)
    # Postgres' own hint asks the same as ours.
    assert "Is the server running" not in str(caught.value)


def test_a_first_call_says_early_that_the_database_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    app = App("postgresql://postgres@127.0.0.1:1/db", call_timeout="2s")
    heard: list[Telemetry] = []
    app.subscribe(heard.append)
    with pytest.raises(DatabaseTimeout):
        app.pause("mail")
    assert [type(event) for event in heard] == [DatabaseSilent]
    (said,) = caplog.messages
    assert "db at 127.0.0.1:1 has not answered for 1s (" in said
    assert "refused): trying until 2s have passed. Is Postgres running there" in said


def test_a_first_call_that_is_answered_says_nothing(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    with App(dsn) as app:
        app.pause("mail")
    assert caplog.messages == []


def test_a_database_that_does_not_exist_is_named(server_dsn: str) -> None:
    with pytest.raises(DatabaseError, match=r'"nowhere" does not exist.*create it, or correct the URL'):
        App(make_conninfo(server_dsn, dbname="nowhere")).__enter__()


async def test_a_schema_not_migrated_names_the_command(empty_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match='run "stepwell migrate"'):
        async with App(empty_dsn):
            pass
    app = App(empty_dsn)

    @app.task
    async def note() -> None: ...

    with pytest.raises(SchemaMismatch, match='run "stepwell migrate"'):
        await note.aenqueue()
    with pytest.raises(SchemaMismatch, match='run "stepwell migrate"'):
        await Worker(app).run()
    await app.aclose()


def test_a_role_without_rights_is_told_who_grants_them(dsn: str, conn: psycopg.Connection[Any]) -> None:
    role = f"r{conn.info.dbname}"
    conn.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
    try:
        # Peer authentication lets only the owner in, so take the role on inside.
        options = f"-c role={role}"
        with pytest.raises(DatabaseError, match=f'its owner, .* allows it with "stepwell grant {role} --as KIND"'):
            App(make_conninfo(dsn, options=options)).__enter__()
        conn.execute(sql.SQL("grant usage on schema stepwell to {}").format(sql.Identifier(role)))
        with App(make_conninfo(dsn, options=options)) as app:

            @app.task
            def note() -> None: ...

            with pytest.raises(DatabaseError, match=f'allows it with "stepwell grant {role} --as producer"'):
                note.enqueue()
    finally:
        conn.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


async def test_enqueue_goes_on_after_its_idle_connections_were_cut(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> None: ...

    await asyncio.gather(*[note.aenqueue(n) for n in range(5)])
    assert cut_others(conn) >= 1
    await note.aenqueue(6)


def test_a_sync_pool_survives_cut_connections_too(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with App(dsn) as app:

        @app.task
        def note(n: int) -> None: ...

        note.enqueue(1)
        assert cut_others(conn) >= 1
        assert note.enqueue(2).info() is not None


async def test_an_app_is_usable_without_being_opened(dsn: str) -> None:
    app = App(dsn)

    @app.task
    async def note(n: int) -> None: ...

    job = await note.aenqueue(1)
    assert await job.ainfo() is not None
    await app.aclose()


def cut_others(conn: psycopg.Connection[Any]) -> int:
    """End every other connection to this database, and say how many there were."""
    cursor = conn.execute(
        "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity "
        "where pid <> pg_backend_pid() and datname = current_database()"
    )
    return (cursor.fetchone() or (0,))[0]


async def test_enqueueing_on_a_connection_to_an_unmigrated_database_names_the_command(empty_dsn: str) -> None:
    app = App(empty_dsn)

    @app.task
    async def note(n: int) -> None: ...

    async with await psycopg.AsyncConnection.connect(empty_dsn) as connection:
        with pytest.raises(DatabaseError, match="stepwell migrate"):
            await note.using(connection=connection).aenqueue(1)
    await app.aclose()


def test_event_loops_that_come_and_go_leave_no_connections_behind(dsn: str, conn: psycopg.Connection[Any]) -> None:
    app = App(dsn)

    @app.task
    async def note(n: int) -> None: ...

    for n in range(8):
        asyncio.run(note.aenqueue(n))  # pyright: ignore[reportArgumentType]
    others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    # The server notices a moment later that a connection was closed.
    until(lambda: conn.execute(others).rowcount <= 2)
    app.close()


async def test_a_result_waited_for_in_vain_with_the_database_away_ends_in_time(
    app: App, server_dsn: str, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def note(n: int) -> None: ...

    job = await note.aenqueue(1)
    with psycopg.connect(server_dsn, autocommit=True) as elsewhere:
        name = sql.Identifier(conn.info.dbname)
        elsewhere.execute(sql.SQL("alter database {} allow_connections off").format(name))
    cut_others(conn)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="has not ended within 500ms"):
        await job.aresult(timeout="500ms")
    assert time.monotonic() - began < 5
