"""Migrating: from nothing, from each version, by hand, twice, at once, and when it must not be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import LiteralString, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell import App, Worker
from stepwell.errors import DatabaseError, SchemaMismatch
from stepwell.postgres import migrate as migrating
from stepwell.postgres.migrate import Migration, check, current, migrate, migrations, newest, script
from tests.conftest import postgres_bin_dir
from tests.sql.calls import blocked
from tests.waiting import until

from .dump import Connection, dump, place

NEXT = Migration(newest() + 1, f"{newest() + 1:04}_next", "alter table stepwell.clock add column colour text;")


@pytest.fixture
def empty(empty_dsn: str) -> Generator[Connection]:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def with_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade of the package, to one that has a migration more."""
    released = migrations()
    monkeypatch.setattr(migrating, "migrations", lambda: (*released, NEXT))


def functions(conn: Connection) -> set[str]:
    rows = conn.execute(
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'stepwell'::regnamespace"
    )
    return {row[0] for row in rows}


# `make sweep` begins at every version, `make test` at the oldest, the last one that landed, and the newest.
_VERSIONS = [migration.version for migration in migrations()]
_BEGIN_AT = _VERSIONS if os.environ.get("STEPWELL_SWEEP") == "full" else [_VERSIONS[0], _VERSIONS[-3], _VERSIONS[-1]]


@pytest.mark.parametrize("version", _BEGIN_AT)
def test_from_each_version_the_rest_leads_to_the_same_schema(empty: Connection, conn: Connection, version: int) -> None:
    names = [migration.name for migration in migrations()]
    assert migrate(empty, target=version) == names[:version]
    assert current(empty) == version
    assert migrate(empty) == names[version:]
    assert dump(empty) == dump(conn)
    assert len(dump(conn)) > 500, "nothing was compared"


@pytest.mark.slow
@pytest.mark.usefixtures("with_next")
def test_a_migration_more_is_applied_to_what_is_there(empty: Connection, conn: Connection) -> None:
    assert migrate(conn) == [NEXT.name]
    assert current(conn) == NEXT.version
    migrate(empty)
    assert dump(conn) == dump(empty)


@pytest.mark.slow
@pytest.mark.usefixtures("with_next")
def test_stopping_at_an_older_version_needs_nothing_of_the_newer(
    empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = migrating._files  # pyright: ignore[reportPrivateUsage]

    def with_a_view(folder: str) -> tuple[tuple[str, str], ...]:
        view = ("colours", "create or replace view stepwell.colours as select q.colour from stepwell.clock q")
        return (*files(folder), view) if folder == "views" else files(folder)

    monkeypatch.setattr(migrating, "_files", with_a_view)
    migrate(empty, target=NEXT.version - 1)
    assert current(empty) == NEXT.version - 1
    migrate(empty)
    assert empty.execute("select colour from stepwell.colours").fetchall() == []


def test_the_versions_count_up_from_one() -> None:
    assert [migration.version for migration in migrations()] == list(range(1, newest() + 1))


def test_migrating_again_changes_nothing(conn: Connection) -> None:
    before = dump(conn)
    assert migrate(conn) == []
    assert dump(conn) == before


def test_two_that_migrate_at_once_both_succeed_and_apply_once(empty: Connection) -> None:
    dsn = empty.info.dsn
    with (
        psycopg.connect(dsn, autocommit=True) as first,
        psycopg.connect(dsn, autocommit=True) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        with empty.transaction():
            empty.execute("select pg_advisory_xact_lock(1937007983, 0)")
            one, two = threads.submit(migrate, first), threads.submit(migrate, second)
            for session in (first, second):
                until(lambda session=session: blocked(empty, session))
        names = [migration.name for migration in migrations()]
        assert sorted([one.result(), two.result()]) == [[], names]
    applied = empty.execute("select name from stepwell.migration order by version").fetchall()
    assert [name for (name,) in applied] == names
    check(empty)


@pytest.mark.parametrize("lock", ["select pg_advisory_lock(1937007983, 0)", "select from stepwell.job"])
def test_a_migration_that_must_wait_long_holds_up_nobody_and_says_for_whom(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lock: LiteralString
) -> None:
    changing = Migration(NEXT.version, NEXT.name, "alter table stepwell.job add column more text")
    released = migrations()
    monkeypatch.setattr(migrating, "migrations", lambda: (*released, changing))
    monkeypatch.setattr(migrating, "_LOCK_TIMEOUT", "set local lock_timeout = '200ms'")
    monkeypatch.setattr(migrating, "_PATIENCE", 0.0)
    with psycopg.connect(dsn, application_name="report") as other:
        other.execute(lock)
        with pytest.raises(DatabaseError, match=rf"process {other.info.backend_pid} \(role \w+, application report\)"):
            migrate(conn)
        assert conn.execute("show lock_timeout").fetchone() == ("0",)
        with psycopg.connect(dsn) as client:
            client.execute("set lock_timeout = '50ms'")
            client.execute("select stepwell.enqueue('work')")
        monkeypatch.setattr(migrating, "_PATIENCE", 60.0)
        with ThreadPoolExecutor(1) as threads, psycopg.connect(dsn) as watcher:
            waiting = threads.submit(migrate, conn)
            until(lambda: f"waits for a lock that process {other.info.backend_pid}" in caplog.text)
            until(lambda: blocked(watcher, conn))
            other.close()
            assert waiting.result() == [NEXT.name]


def test_a_migration_that_fails_leaves_nothing_behind(empty: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Migration(NEXT.version, NEXT.name, "select 1 / 0")
    released = migrations()
    monkeypatch.setattr(migrating, "migrations", lambda: (*released, broken))
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty)
    assert current(empty) == 0
    assert empty.execute("select from pg_namespace where nspname = 'stepwell'").fetchall() == []


def test_the_script_run_by_psycopg_gives_the_same_schema(empty: Connection, conn: Connection) -> None:
    empty.execute(script().encode())
    check(empty)
    assert dump(empty) == dump(conn)


@pytest.mark.slow
@pytest.mark.parametrize("rollback", ["off", "on"])
def test_the_script_run_by_psql_gives_the_same_schema(empty: Connection, conn: Connection, rollback: str) -> None:
    # With ON_ERROR_ROLLBACK each statement stands behind a savepoint of its own.
    settings = ["--set=ON_ERROR_STOP=1", f"--set=ON_ERROR_ROLLBACK={rollback}"]
    subprocess.run(
        [postgres_bin_dir() / "psql", "--no-psqlrc", "--quiet", *settings, place(empty)],
        input=script(),
        check=True,
        text=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PGOPTIONS": "-c client_min_messages=warning"},
    )
    check(empty)
    assert dump(empty) == dump(conn)


@pytest.mark.slow
@pytest.mark.usefixtures("with_next")
def test_the_script_from_a_version_holds_only_the_rest(empty: Connection, conn: Connection) -> None:
    conn.execute(script(NEXT.version - 1).encode())
    migrate(empty)
    assert dump(conn) == dump(empty)


def test_the_script_of_nothing_new_does_no_harm(conn: Connection) -> None:
    before = dump(conn)
    conn.execute(script(newest()).encode())
    assert dump(conn) == before


@pytest.mark.slow
def test_migrating_inside_the_callers_transaction_keeps_the_functions(empty: Connection, conn: Connection) -> None:
    with empty.transaction():
        empty.execute("create table public.theirs ()")
        migrate(empty)
    check(empty)
    assert dump(empty) == dump(conn)
    with empty.transaction(force_rollback=True):
        empty.execute("drop schema stepwell cascade")
        migrate(empty)
        assert current(empty) == newest()


@pytest.mark.usefixtures("with_next")
def test_functions_that_are_in_no_file_any_more_are_dropped(conn: Connection) -> None:
    before = functions(conn)
    conn.execute("create function stepwell.retired(integer) returns integer language sql as 'select 1'")
    conn.execute("create function stepwell.pause(text, integer) returns void language sql as ''")
    migrate(conn)
    assert functions(conn) == before


@pytest.mark.usefixtures("with_next")
def test_a_dropped_function_may_have_been_used_by_a_view_that_is_replaced(conn: Connection) -> None:
    conn.execute("create function stepwell.retired() returns timestamptz language sql as 'select now()'")
    row = conn.execute("select pg_get_viewdef('stepwell.workers'::regclass)").fetchone()
    assert row is not None
    old = row[0].replace("stepwell.now()", "stepwell.retired()")
    assert "retired" in old
    conn.execute(f"create or replace view stepwell.workers as {old}".encode())
    migrate(conn)
    check(conn)
    assert "stepwell.retired()" not in functions(conn)


def test_no_schema_is_refused_with_the_next_act(empty: Connection) -> None:
    with pytest.raises(SchemaMismatch, match='has no stepwell schema yet: run "stepwell migrate"'):
        check(empty)
    assert current(empty) == 0


def test_a_database_that_counts_what_was_and_not_what_is_is_refused(conn: Connection, dsn: str) -> None:
    # For this database only: other tests use the same role.
    database = sql.Identifier(conn.info.dbname)
    conn.execute(sql.SQL("alter database {} set default_transaction_isolation = 'repeatable read'").format(database))
    with (
        psycopg.connect(dsn, autocommit=True) as other,
        pytest.raises(DatabaseError, match="is not 'read committed' in database"),
    ):
        check(other)
    options = "-cdefault_transaction_isolation=read\\ committed"
    with psycopg.connect(make_conninfo(dsn, options=options)) as told:
        check(told)


@pytest.mark.usefixtures("with_next")
def test_an_older_schema_is_refused_with_the_next_act(conn: Connection) -> None:
    wanted = f'is at {NEXT.version - 1}, this stepwell needs {NEXT.version}: run "stepwell migrate"'
    with pytest.raises(SchemaMismatch, match=wanted):
        check(conn)
    migrate(conn)
    check(conn)


def test_a_newer_schema_is_refused_with_the_next_act_and_not_touched(conn: Connection) -> None:
    conn.execute("insert into stepwell.migration (version, name) values (99, '0099_later')")
    before = dump(conn)
    wanted = f"is at 99, this stepwell knows only {newest()}: upgrade the stepwell package"
    with pytest.raises(SchemaMismatch, match=wanted):
        check(conn)
    with pytest.raises(SchemaMismatch, match=wanted):
        migrate(conn)
    assert dump(conn) == before


@pytest.mark.slow
async def test_a_newer_schema_that_works_with_this_code_is_used_and_left_alone(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is rolled back past a migration that says it may be."""
    known = newest()
    released = migrations()
    says: LiteralString = cast("LiteralString", f"-- stepwell: compatible from {known}\n")
    later = Migration(known + 2, f"{known + 2:04}_later", says + "alter table stepwell.clock add column size text;")
    with monkeypatch.context() as upgraded:
        compatible = Migration(NEXT.version, NEXT.name, says + NEXT.sql)
        upgraded.setattr(migrating, "migrations", lambda: (*released, compatible, later))
        assert migrate(conn) == [NEXT.name, later.name]
    before = dump(conn)
    assert (current(conn), newest()) == (known + 2, known)
    check(conn)
    assert migrate(conn) == []
    assert dump(conn) == before

    async with App(dsn) as app:

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

        async with Worker(app):
            job = await add.aenqueue(1, 2)
            assert await job.aresult(timeout="20s") == 3


def test_one_migration_that_needs_newer_code_is_enough_to_refuse_older(conn: Connection) -> None:
    conn.execute(
        "insert into stepwell.migration (version, name, compatible_from) values (98, '0098', null), (99, '0099', 98)"
    )
    with pytest.raises(SchemaMismatch, match=f"is at 99, this stepwell knows only {newest()}"):
        check(conn)
    accepted = conn.execute("select v, stepwell.accepts(v) from generate_series(97, 100) v").fetchall()
    assert accepted == [(97, False), (98, True), (99, True), (100, False)]


def test_the_newest_migration_lets_workers_of_the_version_before_go_on() -> None:
    assert (migrations()[-1].compatible_from or newest()) < newest()


def test_a_call_of_version_7_that_waits_for_the_migration_finds_the_functions_that_its_body_calls(
    conn: Connection,
) -> None:
    """It resumes with its old body, in the schema of today. Internal functions count, too."""
    functions = (Path(__file__).parent / "version_7_functions.txt").read_text().splitlines()
    gone = conn.execute(
        "select f from unnest(%s::text[]) as f where to_regprocedure(f) is null", (functions,)
    ).fetchall()
    # They have more parameters now, all with defaults, so a call by position or by name finds them.
    assert {name.partition("(")[0] for (name,) in gone} == {
        f"stepwell.{name}"
        for name in (
            "add_stats",
            "enqueue",
            "fail",
            "find_jobs",
            "finish",
            "promote",
            "put_schedules",
            "register_worker",
            "snooze",
        )
    }


def test_the_schema_understands_every_call_of_version_6(conn: Connection) -> None:
    lines = (Path(__file__).parent / "version_6_calls.sql").read_text().splitlines()
    calls = [line for line in lines if not line.startswith("--")]
    assert calls
    for call in calls:
        conn.execute(f"explain {call}".encode())


@pytest.fixture
def stranger(server_dsn: str) -> Generator[sql.Identifier]:
    """A role without rights. To be asked for before the database, so that it goes after what it may own there."""
    name = sql.Identifier(f"r{uuid4().hex[:12]}")
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("create role {}").format(name))
        yield name
        server.execute(sql.SQL("drop role {}").format(name))


def become(conn: Connection, role: sql.Identifier) -> None:
    conn.execute(sql.SQL("set session authorization {}").format(role))


def test_a_role_that_may_not_migrate_is_told_the_grant(stranger: sql.Identifier, empty: Connection) -> None:
    become(empty, stranger)
    with pytest.raises(DatabaseError, match=r"grant create on database .* to "):
        migrate(empty)


@pytest.mark.usefixtures("with_next")
def test_a_role_that_may_use_but_not_migrate_is_told_the_grant(stranger: sql.Identifier, conn: Connection) -> None:
    conn.execute(sql.SQL("grant usage on schema stepwell to {}").format(stranger))
    become(conn, stranger)
    with pytest.raises(DatabaseError, match=r"grant create on database .* to "):
        migrate(conn)
    with pytest.raises(SchemaMismatch, match='run "stepwell migrate"'):
        check(conn)


def test_a_role_that_may_not_look_is_told_where_the_grants_are(stranger: sql.Identifier, conn: Connection) -> None:
    become(conn, stranger)
    for act in (check, migrate):
        with pytest.raises(
            DatabaseError,
            match=r"may not use schema stepwell .*: its owner, 'postgres', .*stepwell grant \w+ --as KIND",
        ) as refused:
            act(conn)
        assert not isinstance(refused.value, SchemaMismatch)


def test_a_role_with_the_grant_can_migrate(stranger: sql.Identifier, empty: Connection) -> None:
    empty.execute(sql.SQL("grant create on database {} to {}").format(sql.Identifier(empty.info.dbname), stranger))
    become(empty, stranger)
    migrate(empty)
    check(empty)


def test_the_owner_of_a_schema_made_for_it_can_migrate(stranger: sql.Identifier, empty: Connection) -> None:
    empty.execute(sql.SQL("create schema stepwell authorization {}").format(stranger))
    become(empty, stranger)
    migrate(empty)
    check(empty)


def test_names_that_do_not_fit_are_mended(empty: Connection) -> None:
    migrate(empty, target=5)
    long = "q" * 9000
    empty.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args) values"
        " (gen_random_uuid(), now(), now(), 'scheduled', 'work', %s, '{}'),"
        " (gen_random_uuid(), now(), now(), 'scheduled', '', '', '{}')",
        (long,),
    )
    empty.execute(
        "insert into stepwell.schedule (id, owner, name, task, args, queue, rank, every, overlap, catchup, jitter,"
        " declared, declared_at, created_at) select gen_random_uuid(), owner, 'a', 'work', '{}', %s, 0, 'NaN', 'skip',"
        " 1, 0, false, now(), now() from unnest(%s::text[]) as owner",
        (long, ["app", "", "unnamed", f"{long}1", f"{long}2"]),
    )
    migrate(empty)
    jobs = empty.execute("select task, queue from stepwell.job order by task").fetchall()
    assert jobs == [("unnamed", "default"), ("work", "q" * 200)]
    assert empty.execute("select queue, every from stepwell.schedule").fetchall() == [("q" * 200, 3155760000)] * 5
    assert empty.execute("select promoted, failed from stepwell.promote()").fetchall() == [(2, [])]
