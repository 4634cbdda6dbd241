"""Run the command: here in this process, where that shows the same, or as a process of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from cli.commands import HERE, Answer, Jobs, Ran, Run, Start

from stepwell.cli import main
from stepwell.postgres.address import ENVIRONMENT
from tests.forked import ForkedProcess


@pytest.fixture
def run_without_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process, in the directory of the tests, where shop.py is."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*argv: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["stepwell", *argv])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def run(run_without_database: Run, monkeypatch: pytest.MonkeyPatch, dsn: str) -> Run:
    """The same on this test's database."""
    monkeypatch.setenv(ENVIRONMENT, dsn)
    return run_without_database


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    """Have commands that are run in this process read from a terminal, on which this was typed."""
    person, terminal = pty.openpty()
    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)

        def answer(typed: str) -> None:
            os.write(person, f"{typed}\n".encode())

        yield answer
    os.close(person)


@pytest.fixture
def start(dsn: str) -> Iterator[Start]:
    """Start a command as a process on this test's database. What still runs at the end is killed.

    They are forked, which is quicker, unless `fresh` says that it matters how they begin.
    """
    started: list[ForkedProcess | subprocess.Popen[str]] = []

    def start(*argv: str, fresh: bool = False, **options: Any) -> ForkedProcess | subprocess.Popen[str]:
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": HERE,
            "env": {**os.environ, ENVIRONMENT: dsn},
            **options,
        }
        if fresh:
            process = subprocess.Popen([sys.executable, "-m", "stepwell", *argv], text=True, **given)
        else:
            process = ForkedProcess(["-m", "stepwell", *argv], **given)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:
            pass


@pytest.fixture
def jobs(conn: psycopg.Connection[Any]) -> Jobs:
    return Jobs(conn)
