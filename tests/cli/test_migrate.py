"""`stepwell migrate` and `stepwell schema version`."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from cli.commands import Run
from psycopg.conninfo import make_conninfo
from waiting import until

from stepwell.cli import progress
from stepwell.postgres import migrate, queries
from stepwell.postgres.fetch import fetch


def test_migrating_applies_what_is_missing_and_then_nothing(run_without_database: Run, empty_dsn: str) -> None:
    first = run_without_database("migrate", "-d", empty_dsn)
    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines() == [f"applied {migration.name}" for migration in migrate.migrations()]
    again = run_without_database("migrate", "-d", empty_dsn)
    assert (again.code, again.out) == (0, f"schema is at {migrate.newest()}, nothing to do\n")


def test_the_sql_needs_no_database_and_does_the_same(run_without_database: Run, empty_dsn: str) -> None:
    ran = run_without_database("migrate", "--sql")
    assert (ran.code, ran.out, ran.err) == (0, migrate.script(), "")
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(ran.out.encode())
        assert migrate.current(connection) == migrate.newest()


def test_the_sql_can_start_from_a_version(run_without_database: Run) -> None:
    newest = migrate.newest()
    ran = run_without_database("migrate", "--sql", "--from", str(newest))
    assert (ran.code, ran.out) == (0, migrate.script(newest))
    beyond = run_without_database("migrate", "--sql", "--from", str(newest + 1))
    assert beyond.code == 2
    assert f"up to {newest}" in beyond.err


def test_migrating_without_the_rights_says_which(run: Run, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("do $$ begin create role cli_no_owner; exception when duplicate_object then null; end $$")
    ran = run("migrate", "-d", make_conninfo(empty_dsn, options="-c role=cli_no_owner"))
    assert ran.code == 1
    assert "may not change the schema" in ran.err
    assert ran.err.count("\n") == 1


def test_the_schema_version_that_fits_is_code_0(run: Run) -> None:
    ran = run("schema", "version")
    newest = migrate.newest()
    assert (ran.code, ran.out, ran.err) == (0, f"schema is at {newest}, this stepwell needs {newest}\n", "")


@pytest.mark.parametrize(("version", "act"), [(0, 'run "stepwell migrate"'), (999, "upgrade the stepwell package")])
def test_a_schema_version_that_does_not_fit_is_code_1(run: Run, dsn: str, version: int, act: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        if version:
            connection.execute("insert into stepwell.migration (version, name) values (%s, 'later')", (version,))
        else:
            connection.execute("drop schema stepwell cascade")
    ran = run("schema", "version")
    assert ran.code == 1
    assert ran.out == f"schema is at {version}, this stepwell needs {migrate.newest()}\n"
    assert act in ran.err
    assert run("migrate").code == (0 if version == 0 else 1)


def test_each_part_of_a_migration_is_told(empty_dsn: str) -> None:
    told: list[tuple[str, int, int | None]] = []
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        migrate.migrate(connection, tell=lambda what, done, total: told.append((what, done, total)))
    count = len(migrate.migrations())
    assert told[0] == (f"applying {migrate.migrations()[0].name}", 0, count + 1)
    assert told[-1] == ("replacing functions and views", count, count + 1)


def test_a_migration_that_waits_says_for_whom(
    run_without_database: Run, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    monkeypatch.setattr(migrate, "_LOCK_TIMEOUT", "set local lock_timeout = '50ms'")
    with (
        psycopg.connect(empty_dsn, autocommit=True, application_name="the-holder") as holder,
        psycopg.connect(empty_dsn, autocommit=True) as watcher,
    ):
        holder.execute("select pg_advisory_lock(1937007983, 0)")

        def waits() -> int:
            return watcher.execute(
                "select from pg_locks l join pg_database d on d.oid = l.database"
                " where d.datname = current_database() and not l.granted and l.classid = 1937007983"
            ).rowcount

        def release_after_a_try() -> None:
            until(waits)
            until(lambda: not waits())
            until(waits)  # it has said for whom, and tries again
            holder.execute("select pg_advisory_unlock_all()")

        releases = threading.Thread(target=release_after_a_try)
        releases.start()
        ran = run_without_database("migrate", "-d", empty_dsn)
        releases.join()
    assert ran.code == 0
    assert "waiting for a lock that process" in ran.err
    assert "the-holder" in ran.err
    assert "applying 0001" in ran.err


def test_an_index_that_is_being_built_is_found(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn) as writer, psycopg.connect(dsn, autocommit=True) as builder:
        writer.execute("delete from stepwell.tick")  # the index waits for this to end
        builds = threading.Thread(target=builder.execute, args=("create index concurrently on stepwell.tick (at)",))
        builds.start()
        [build] = until(lambda: fetch(conn, queries.health.index_build(builder.info.backend_pid)))
        writer.rollback()
        builds.join()
    assert build.table == "stepwell.tick"
