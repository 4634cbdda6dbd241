"""What a crash leaves behind, of ours, of the server's or of the machine's, and how the next start copes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from stepwell.embedded import EmbeddedPostgres, lifetime
from stepwell.embedded.server_account import server_user
from stepwell.postgres.database import Database

from .program import Program, crash, is_free, pid, runs, until

StartProgram = Callable[..., Program]


@pytest.fixture
def stranger(place: Path) -> Generator[int]:
    """The pid of a process that is no Postgres, but runs as the user that Postgres runs as."""
    user = server_user(place / "data")
    process = subprocess.Popen(
        ["sleep", "60"],
        user=user.uid if user.is_another else None,
        group=user.gid if user.is_another else None,
        extra_groups=[] if user.is_another else None,
    )
    yield process.pid
    assert process.poll() is None, "the stranger was left alone"
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_killed_server_comes_back_with_all_it_had_committed(place: Path) -> None:
    with EmbeddedPostgres(place) as embedded:
        with psycopg.connect(embedded.dsn) as connection:
            connection.execute("drop table if exists crashed")
            connection.execute("create table crashed as select n from generate_series(1, 1000) n")
        killed = crash(place)
        with EmbeddedPostgres(place) as next_user, psycopg.connect(next_user.dsn) as connection:
            assert connection.execute("select count(*) from crashed").fetchone() == (1000,)
            assert pid(place) != killed
        with psycopg.connect(embedded.dsn) as connection:
            assert connection.execute("select count(*) from crashed").fetchone() == (1000,)


def test_a_database_that_was_given_only_the_url_brings_a_server_back_that_it_has_adopted(place: Path) -> None:
    server = Database(f"embedded:{place}", pool_size=1)
    worker = Database(server.address.url, pool_size=1)
    worker.address.adopt(server.address)
    crash(place)
    worker.address.revive()
    worker.connect().close()
    worker.close()
    server.close()
    assert not runs(place)


def test_who_uses_it_already_brings_a_killed_server_back_by_start(place: Path) -> None:
    with EmbeddedPostgres(place) as embedded:
        dsn = embedded.dsn
        crash(place)
        assert embedded.start() == dsn
        psycopg.connect(dsn).close()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_a_server_that_somebody_stopped_is_started_again(place: Path, sent: signal.Signals) -> None:
    with EmbeddedPostgres(place) as embedded:
        crash(place, sent)
        embedded.start()
        psycopg.connect(embedded.dsn).close()


@pytest.mark.slow
def test_a_start_that_is_killed_while_it_makes_the_database_leaves_no_half_of_it(
    room: Path, program: StartProgram
) -> None:
    # On a busy machine initdb may have done before we see it at work: then it is the turn of the next.
    for path in (room / f"new{number}" for number in range(20)):
        starter = program(path)
        until(lambda path=path: list(path.glob("data*/PG_VERSION")), "initdb is at work")
        starter.kill()
        if not (path / "data").exists():
            break
    else:
        pytest.fail("initdb was never seen at work")
    with EmbeddedPostgres(path) as embedded:
        psycopg.connect(embedded.dsn).close()
        assert not (path / "data.new").exists()


def test_a_start_that_is_killed_while_the_server_starts_leaves_nothing_behind(
    place: Path, program: StartProgram
) -> None:
    starter = program(place)
    until(lambda: (place / "data" / "postmaster.pid").exists(), "the server is on its way")
    starter.kill()
    until(lambda: is_free(place / lifetime.KEEPER), "the keeper has done its work")
    assert not runs(place)
    with EmbeddedPostgres(place) as embedded:
        psycopg.connect(embedded.dsn).close()


def test_leftovers_of_a_power_failure_do_not_keep_it_from_starting(place: Path, stranger: int) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for left in (dead.pid, stranger):
        # As Postgres writes them, ready, in a file that outlived it.
        lines = [left, place / "data", 1700000000, 5432, place / "run", "", "  1234567  1", "ready   "]
        (place / "data" / "postmaster.pid").write_text("".join(f"{line}\n" for line in lines))
        (place / "run" / ".s.PGSQL.5432.lock").write_text("".join(f"{line}\n" for line in lines[:5]))
        (place / "run" / ".s.PGSQL.5432").touch()
        with EmbeddedPostgres(place) as embedded:
            assert pid(place) != left
            psycopg.connect(embedded.dsn).close()


def test_a_keeper_does_not_mistake_a_stranger_for_the_server(place: Path, stranger: int) -> None:
    (place / "data" / "postmaster.pid").write_text(f"{stranger}\n{place / 'data'}\n1700000000\n5432\n\n")
    lifetime.stop(place)


def test_a_server_whose_socket_was_removed_is_started_again(place: Path) -> None:
    with EmbeddedPostgres(place) as embedded:
        (place / "run" / ".s.PGSQL.5432").unlink()
        with EmbeddedPostgres(place) as next_user:
            psycopg.connect(next_user.dsn).close()
        psycopg.connect(embedded.dsn).close()


@pytest.mark.slow
def test_removing_the_directory_of_a_running_server_means_a_new_one(spare: Path) -> None:
    embedded = EmbeddedPostgres(spare)
    embedded.start()
    orphan = pid(spare)
    shutil.rmtree(spare)
    with EmbeddedPostgres(spare) as anew:
        assert pid(spare) != orphan
        embedded.stop()
        psycopg.connect(anew.dsn).close()
    # Postgres notices by itself, within a minute.
    with suppress(ProcessLookupError):
        os.kill(orphan, signal.SIGKILL)


def test_the_log_does_not_grow_for_ever(place: Path) -> None:
    (place / "postgres.log").write_bytes(b"." * 10_000_001)
    with EmbeddedPostgres(place):
        assert (place / "postgres.log").stat().st_size < 10_000
        assert (place / "postgres.log.old").stat().st_size == 10_000_001
