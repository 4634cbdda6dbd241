"""What all commands have in common: errors in one line, exit codes, the database."""

from __future__ import annotations

import inspect
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from uuid import UUID

import pytest
from cli.commands import Run, Start
from psycopg.conninfo import make_conninfo

from stepwell import Worker
from stepwell.cli.worker import worker
from stepwell.embedded import EmbeddedPostgres, lifetime
from stepwell.postgres.address import ENVIRONMENT


def test_the_version_is_printed(run_without_database: Run) -> None:
    ran = run_without_database("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"stepwell {version('stepwell')}\n", "")


def test_without_its_extra_the_command_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; from stepwell.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = (
        "stepwell: the command is not installed: run pip install 'stepwell[worker]', or in a checkout of Stepwell "
        "pip install '.[worker]'\n"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", said)


def test_help_names_every_command(run_without_database: Run) -> None:
    ran = run_without_database("--help")
    assert ran.code == 0
    for command in (
        "worker",
        "dev",
        "enqueue",
        "emit",
        "jobs",
        "queues",
        "pause",
        "resume",
        "workers",
        "tasks",
        "doctor",
        "migrate",
    ):
        assert f"\n  {command} " in ran.out


@pytest.mark.parametrize(
    "noun", ["audit", "bulk", "failures", "grants", "jobs", "limits", "queues", "schedules", "sizes", "workers"]
)
def test_a_noun_lists_with_and_without_the_word_list(run: Run, noun: str) -> None:
    short, long = run(noun), run(noun, "list")
    assert (short.code, short.out, short.err) == (long.code, long.out, long.err) == (0, long.out, "")
    assert run(noun, "--json").json == run(noun, "list", "--json").json
    assert run(noun, "--help").out.startswith(f"Usage: stepwell {noun} [OPTIONS]")


def test_a_command_says_early_that_its_database_is_silent(
    run_without_database: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=2"
        ran = run_without_database("jobs", "list", "--database", url)
    assert (ran.code, "cannot be used" in ran.err) == (1, True)
    (said,) = caplog.messages
    assert "has not answered for 1s: still trying. Is Postgres running there" in said


def test_a_command_whose_database_refuses_it_does_not_wait(run_without_database: Run) -> None:
    ran = run_without_database("jobs", "list", "--database", "postgresql://postgres@127.0.0.1:1/db")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "refused; is Postgres running there" in ran.err


@pytest.mark.parametrize("group", [(), ("schema",)])
def test_no_command_shows_the_help(run_without_database: Run, group: tuple[str, ...]) -> None:
    ran = run_without_database(*group)
    assert ran.code == 2
    assert "Commands:" in ran.out
    assert ran.err == ""


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nothing",), "nothing"),
        (("jobs", "list", "--nothing"), "--nothing"),
        (("jobs", "list", "--limit", "0"), "--limit"),
        (("jobs", "list", "--limit", "many"), "--limit"),
        (("jobs", "list", "--state", "asleep"), "scheduled, ready, running"),
        (("jobs", "list", "--older-than", "soon"), "--older-than is 'soon'"),
        (("jobs", "list", "--metadata", "[1]"), "--metadata is a JSON array"),
        (("jobs", "show"), "ID"),
        (("jobs", "show", "7"), "'7' is not a job's id"),
        (("pause",), "QUEUE"),
        (("pause", "a\tb"), "QUEUE is 'a\\tb'"),
        (("migrate", "--from", "1"), "--from needs --sql"),
        (("jobs", "list", "--task", "\udcff"), "not valid UTF-8"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    run_without_database: Run, argv: tuple[str, ...], said: str
) -> None:
    ran = run_without_database(*argv)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("stepwell: ")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_without_a_database_the_ways_to_name_one_are_said(run_without_database: Run) -> None:
    ran = run_without_database("queues")
    assert ran.code == 1
    assert "--database" in ran.err
    assert ENVIRONMENT in ran.err
    assert "embedded" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("before", [True, False])
def test_the_database_may_be_named_before_the_command_or_after_it(
    run_without_database: Run, dsn: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "postgresql://nowhere.invalid/x")
    named = ("--database", dsn)
    ran = run_without_database(*(named if before else ()), "queues", "--json", *(() if before else named))
    assert (ran.code, ran.json) == (0, [])


def test_a_database_that_is_not_there_is_one_line(run: Run, tmp_path: Path, dsn: str) -> None:
    for url in (f"host={tmp_path} dbname=x", make_conninfo(dsn, dbname="absent"), "postgresql://[", "nonsense"):
        ran = run("queues", "-d", url)
        assert ran.code == 1
        assert ran.err.startswith("stepwell: ")
        assert ran.err.count("\n") == 1


def test_a_database_without_the_schema_names_the_next_act(run: Run, empty_dsn: str) -> None:
    ran = run("jobs", "list", "-d", empty_dsn)
    assert ran.code == 1
    assert 'run "stepwell migrate"' in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.slow
def test_an_embedded_database_is_started_and_migrated(run_without_database: Run, tmp_path: Path) -> None:
    ran = run_without_database("enqueue", "add", "-d", f"embedded:{tmp_path / 'pg'}")
    assert ran.code == 0
    assert UUID(ran.out.strip())


@pytest.mark.parametrize("command", [("jobs", "list"), ("doctor",), ("pause", "mail"), ("schema", "version")])
def test_only_some_commands_make_an_embedded_database(
    run_without_database: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    ran = run_without_database(*command, "-d", f"embedded:{tmp_path / 'pg'}")
    assert ran.code == 1
    assert ran.err.startswith(f"stepwell: there is no embedded Postgres in {tmp_path / 'pg'}: go to the directory")
    assert not (tmp_path / "pg").exists()


def test_a_mistyped_embedded_is_repeated_with_what_was_meant(run_without_database: Run) -> None:
    assert run_without_database("queues", "-d", "embeded").err == (
        "stepwell: 'embeded' names no database: did you mean \"embedded\"?\n"
    )
    assert "'nonsense' is not a URL that Postgres understands" in run_without_database("queues", "-d", "nonsense").err
    assert "secret" not in run_without_database("queues", "-d", "postgresql+x://me:secret@host/x").err


@pytest.mark.slow
def test_control_c_ends_a_command_quietly(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        process = start("queues", "-d", f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x", fresh=True)
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)  # it waits for an answer now
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out + err.strip() == ""


@pytest.mark.slow
def test_the_console_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("stepwell")
    ran = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("stepwell ")


def test_the_workers_options_have_the_defaults_of_the_class() -> None:
    here, there = inspect.signature(worker).parameters, inspect.signature(Worker).parameters
    for name in ("concurrency", "grace", "lease", "renew", "poll"):
        assert here[name].default == there[name].default


def test_without_a_database_an_embedded_one_in_this_directory_is_named(
    run_without_database: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "or --database on the command line" in run_without_database("jobs", "list").err
    place = EmbeddedPostgres().path
    place.mkdir()
    (place / lifetime.MUTEX).touch()
    ran = run_without_database("jobs", "list")
    assert ran.code == 1
    assert "an embedded Postgres in ./.stepwell: to use that, add --database embedded" in ran.err
