"""What the shell completes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commands import Jobs, Run, make_schedule

from stepwell.postgres.address import ENVIRONMENT

SCRIPT = Path(sys.executable).with_name("stepwell")


Complete = Callable[..., list[str]]


@pytest.fixture
def complete(run: Run, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Complete the last of these words, as bash would ask for it."""

    def complete(*words: str) -> list[str]:
        monkeypatch.setenv("_STEPWELL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["stepwell", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        ran = run()
        assert ran.err == ""
        return [line for line in ran.out.splitlines() if line]

    return complete


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("enq") == ["enqueue"]
    assert complete("jobs", "re") == ["retry"]
    assert "--read-only" in complete("top", "--")


def test_states_are_completed(complete: Complete) -> None:
    assert complete("jobs", "list", "--state", "s") == ["scheduled", "succeeded"]


def test_names_in_use_are_completed(complete: Complete, jobs: Jobs) -> None:
    jobs.ready("greet", queue="mail")
    jobs.ready("add", queue="main")
    worker = jobs.worker("add", queues_=("main",))
    make_schedule(jobs, "nightly", "add")
    assert complete("pause", "ma") == ["mail", "main"]
    assert complete("jobs", "list", "--queue", "mai") == ["mail", "main"]
    assert complete("jobs", "retry", "--task", "g") == ["greet"]
    assert complete("enqueue", "") == ["add", "greet"]
    assert complete("stop", "--worker", "") == [worker]
    assert complete("schedules", "pause", "") == ["nightly"]


def test_a_name_that_a_shell_would_act_on_is_not_completed(complete: Complete, jobs: Jobs) -> None:
    for name in ("$(reboot)", "`id`", "a;b", "*", "a b", "ok/näme.%1"):
        jobs.ready(queue=name)
    assert complete("pause", "") == ["ok/näme.%1"]


def test_a_name_that_is_an_option_is_not_completed(complete: Complete, jobs: Jobs) -> None:
    for name in ("--all", "-y", "=ls", "~root"):
        jobs.ready(queue=name)
    assert complete("pause", "") == []
    assert complete("jobs", "list", "--queue", "") == []
    assert complete("pause", "--al") == ["--all"], "the option itself"
    jobs.ready(queue="a--all=1")
    assert complete("pause", "") == ["a--all=1"]


@pytest.mark.parametrize("url", ["postgresql://nowhere.invalid/x", "nonsense", "embedded:/nowhere/at/all"])
def test_without_a_database_nothing_is_completed_or_said(
    complete: Complete, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT, url)
    assert complete("pause", "") == []


def test_a_database_that_does_not_answer_is_not_waited_for(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(ENVIRONMENT, f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x")
        begun = time.monotonic()
        assert complete("pause", "") == []
        assert time.monotonic() - begun < 60


def test_the_database_on_the_command_line_counts(
    complete: Complete, jobs: Jobs, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.ready(queue="mail")
    parts = dict(part.split("=", 1) for part in dsn.split())
    url = f"postgresql:///{parts['dbname']}?host={parts['host']}&port={parts['port']}&user={parts['user']}"
    monkeypatch.delenv(ENVIRONMENT)
    assert complete("pause", "") == []
    assert complete("--database", url, "pause", "") == ["mail"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_too(run: Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    jobs.ready(queue="mail")
    monkeypatch.setenv("_STEPWELL_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "stepwell pause ma")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert "mail" in run().out


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_shown(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = subprocess.run([SCRIPT, "--show-completion", shell], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0
    assert "_STEPWELL_COMPLETE=complete_" + shell in ran.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_a_queue(jobs: Jobs, dsn: str, tmp_path: Path) -> None:
    jobs.ready(queue="mail")
    program = (
        'eval "$(stepwell --show-completion)"\n'
        "COMP_WORDS=(stepwell pause ma); COMP_CWORD=2\n"
        '_stepwell_completion stepwell; echo "${COMPREPLY[@]}"\n'
    )
    environment = {
        **os.environ,
        ENVIRONMENT: dsn,
        "PATH": f"{SCRIPT.parent}:{os.environ['PATH']}",
        "SHELL": "/bin/bash",
    }
    script = tmp_path / "complete.sh"
    script.write_text(program)
    ran = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("mail\n", "")
