"""Who keeps the server alive, and who does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from stepwell.embedded import EmbeddedPostgres, lifetime
from stepwell.errors import EmbeddedError

from .program import Program, is_free, keeper_pid, pid, runs, until

StartProgram = Callable[..., Program]


def answers(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select 1").fetchone() == (1,)


def test_it_answers_from_start_to_stop(place: Path) -> None:
    embedded = EmbeddedPostgres(place)
    dsn = embedded.start()
    assert answers(dsn)
    assert embedded.dsn == dsn
    embedded.stop()
    assert not runs(place)
    with pytest.raises(EmbeddedError, match=r"call start\(\) first"):
        _ = embedded.dsn


def test_starting_and_stopping_again_change_nothing(place: Path) -> None:
    embedded = EmbeddedPostgres(place)
    assert embedded.start() == embedded.start()
    embedded.stop()
    embedded.stop()
    assert not runs(place)


def test_what_was_written_is_there_at_the_next_start(place: Path) -> None:
    with EmbeddedPostgres(place) as embedded, psycopg.connect(embedded.dsn) as connection:
        connection.execute("drop table if exists kept")
        connection.execute("create table kept as select 42 as answer")
    with EmbeddedPostgres(place) as embedded, psycopg.connect(embedded.dsn) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


def test_two_objects_in_one_process_share_it_and_the_last_stops_it(place: Path) -> None:
    with EmbeddedPostgres(place) as one:
        with EmbeddedPostgres(place) as other:
            assert one.dsn == other.dsn
        assert answers(one.dsn)
    assert not runs(place)


def test_it_outlives_the_killed_process_that_started_it(place: Path, program: StartProgram) -> None:
    starter = program(place)
    dsn = starter.line()
    other = program(place)
    assert other.line() == dsn
    with psycopg.connect(dsn) as connection:
        starter.kill()
        assert connection.execute("select 1").fetchone() == (1,)
        assert is_free(place / lifetime.MUTEX)
        assert answers(dsn)


@pytest.mark.parametrize("last", [Program.kill, Program.leave], ids=["killed", "left without stop()"])
def test_it_is_stopped_when_the_last_process_is(
    place: Path, program: StartProgram, last: Callable[[Program], None]
) -> None:
    programs = [program(place), program(place)]
    dsns = {each.line() for each in programs}
    assert len(dsns) == 1
    programs[0].kill()
    assert answers(dsns.pop())
    last(programs[1])
    until(lambda: not runs(place), "the server is gone")
    assert not (place / "data" / "postmaster.pid").exists(), "it was shut down, not killed"


def test_six_that_start_it_at_once_get_one_server(room: Path, program: StartProgram) -> None:
    programs = [program(room / "new") for _ in range(6)]
    dsns = {each.line() for each in programs}
    assert len(dsns) == 1
    assert answers(dsns.pop())
    assert (room / "new" / "postgres.log").read_text().count("ready to accept connections") == 1


def test_ctrl_c_in_the_terminal_does_not_reach_it(place: Path, program: StartProgram) -> None:
    one, other = program(place), program(place)
    dsn = one.line()
    other.line()
    server, its_keeper = pid(place), keeper_pid(place)
    os.killpg(one.process.pid, signal.SIGINT)
    one.process.wait(20)
    assert answers(dsn)
    assert (pid(place), keeper_pid(place)) == (server, its_keeper)
    assert os.getsid(server) not in (os.getsid(0), one.process.pid)


def test_a_killed_keeper_is_replaced_by_the_next_who_comes(place: Path, program: StartProgram) -> None:
    first = program(place)
    first.line()
    os.kill(keeper_pid(place), signal.SIGKILL)
    until(lambda: is_free(place / lifetime.KEEPER), "the keeper is gone")
    second = program(place)
    assert answers(second.line())
    assert not is_free(place / lifetime.KEEPER)
    first.kill()
    assert runs(place)
    second.kill()
    until(lambda: not runs(place), "the new keeper has stopped the server")


def test_the_keeper_cannot_be_talked_out_of_its_duty(place: Path, program: StartProgram) -> None:
    user = program(place)
    user.line()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(keeper_pid(place), number)
    user.kill()
    until(lambda: not runs(place), "the keeper has stopped the server")


@pytest.mark.slow
def test_a_forked_child_does_not_take_it_from_its_parent(place: Path, program: StartProgram) -> None:
    body = """
embedded.start()
child = os.fork()
if child == 0:
    embedded.stop()
    os._exit(0)
os.waitpid(child, 0)
print(embedded.dsn, flush=True)
sys.stdin.read()
"""
    assert answers(program(place, body).line())


def test_a_forked_child_keeps_it_after_its_parent(place: Path, program: StartProgram) -> None:
    body = """
embedded.start()
if os.fork() == 0:
    os.read(0, 1)
    embedded.stop()
    os._exit(0)
print(embedded.dsn, flush=True)
os.close(0)
os._exit(0)
"""
    parent = program(place, body)
    dsn = parent.line()
    assert parent.process.wait(20) == 0
    assert answers(dsn)
    assert parent.process.stdin
    parent.process.stdin.close()
    until(lambda: not runs(place), "the child has left, too")


def test_a_child_forked_in_the_middle_of_a_start_does_not_hold_its_locks(place: Path, program: StartProgram) -> None:
    body = """
from stepwell.embedded import lifetime
mutex = lifetime.hold(embedded.path / lifetime.MUTEX)
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
lifetime.release(mutex)
print(embedded.start(), flush=True)
sys.stdin.read()
"""
    assert answers(program(place, body).line())
    assert is_free(place / lifetime.MUTEX)
