"""Who gets in, and what the server is like inside."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Generator
from pathlib import Path

import psycopg
import pytest

from stepwell.embedded import EmbeddedPostgres, wheel_bin_dir
from stepwell.embedded.server_account import server_user

from .program import USE, Program

StartProgram = Callable[..., Program]


@pytest.fixture
def embedded(place: Path) -> Generator[EmbeddedPostgres]:
    with EmbeddedPostgres(place) as embedded:
        yield embedded


def ask(dsn: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def show(dsn: str, name: str) -> object:
    return ask(dsn, f"show {name}")[0][0]


def test_its_directories_and_its_socket_are_its_owners_alone(room: Path) -> None:
    path = room / "new"
    with EmbeddedPostgres(path):
        owner = server_user(path / "data").uid
        for private in (path / "data", path / "run", path / "run" / ".s.PGSQL.5432"):
            info = private.lstat()
            assert (stat.S_IMODE(info.st_mode), info.st_uid) == (0o700, owner), private
        for closed in ("postgres.log", "stepwell.lock", "users.lock", "keeper.lock", "server.lock"):
            info = (path / closed).stat()
            assert (stat.S_IMODE(info.st_mode), info.st_uid) == (0o600, os.geteuid()), closed
        # Passing through is all that others may do, and only where the server's user is another.
        assert stat.S_IMODE(path.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


def test_it_has_no_tcp_port_even_if_asked_for_one(embedded: EmbeddedPostgres) -> None:
    assert show(embedded.dsn, "listen_addresses") == ""
    with psycopg.connect(embedded.dsn, autocommit=True) as connection:
        connection.execute("alter system set listen_addresses = '*'")
        connection.execute("alter system set unix_socket_permissions = '0777'")
    embedded.stop()
    embedded.start()
    assert show(embedded.dsn, "listen_addresses") == ""
    assert show(embedded.dsn, "unix_socket_permissions") == "0700"
    with psycopg.connect(embedded.dsn, autocommit=True) as connection:
        connection.execute("alter system reset all")


def test_only_its_owner_is_let_in_and_that_by_the_kernels_word(embedded: EmbeddedPostgres) -> None:
    rules = ask(embedded.dsn, "select type, auth_method, error from pg_hba_file_rules order by 1")
    assert rules == [("host", "reject", None), ("local", "peer", None)]
    maps = ask(embedded.dsn, "select sys_name, pg_username, error from pg_ident_file_mappings")
    assert maps == [(pwd.getpwuid(os.geteuid()).pw_name, "postgres", None)]


def test_its_owner_is_let_in_as_nobody_but_the_superuser(embedded: EmbeddedPostgres) -> None:
    with psycopg.connect(embedded.dsn) as connection:
        connection.execute("drop role if exists other")
        connection.execute("create role other login superuser")
    with pytest.raises(psycopg.OperationalError, match="Peer authentication failed"):
        psycopg.connect(embedded.dsn, user="other")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")
def test_even_the_user_it_runs_as_is_not_let_in(embedded: EmbeddedPostgres) -> None:
    tried = server_user(embedded.path / "data").run([wheel_bin_dir() / "psql", embedded.dsn, "-c", "select 1"])
    assert "Peer authentication failed" in tried.stdout


def test_it_keeps_what_it_was_given(embedded: EmbeddedPostgres) -> None:
    for name in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
        assert show(embedded.dsn, name) == "on"
    assert show(embedded.dsn, "max_connections") == "200"


def test_it_is_the_same_on_every_machine(room: Path, program: StartProgram) -> None:
    abroad = "os.environ.update(LC_ALL='de_DE.UTF-8', TZ='Asia/Tokyo', PGTZ='Asia/Tokyo', PGPORT='1')\n"
    dsn = program(room / "new", abroad + USE).line()
    for name, value in {"server_encoding": "UTF8", "timezone": "UTC", "lc_messages": "C"}.items():
        assert show(dsn, name) == value
    assert ask(dsn, "select datlocprovider, datlocale from pg_database where datname = 'template1'") == [
        ("b", "C.UTF-8")
    ]
    assert ask(dsn, "select lower('ÄÖ'), array_agg(x order by x) from unnest('{b,B,a,ä}'::text[]) x") == [
        ("äö", ["B", "a", "b", "ä"])
    ]


def test_variables_of_libpq_do_not_lead_its_users_astray(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGUSER": "x", "PGDATABASE": "x"}.items():
        monkeypatch.setenv(name, value)
    with EmbeddedPostgres(place) as embedded:
        assert ask(embedded.dsn, "select current_user, current_database()") == [("postgres", "postgres")]


@pytest.mark.slow
def test_the_secrets_of_an_application_stay_with_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_KEY", "secret-of-mine")
    with EmbeddedPostgres(place) as embedded, psycopg.connect(embedded.dsn) as connection:
        connection.execute("create temp table environment (line text)")
        connection.execute("copy environment from program 'env'")
        lines = connection.execute("select line from environment").fetchall()
        assert ("LC_CTYPE=C",) in lines
        assert not [line for (line,) in lines if "secret-of-mine" in line]
