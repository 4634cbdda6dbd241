"""`stepwell pause`, `resume` and `stop`."""

from __future__ import annotations

from uuid import uuid4

import pytest
from cli.commands import Jobs, Run


@pytest.mark.parametrize(
    ("scope", "name"), [(("mail",), "queue mail"), (("--task", "add"), "task add"), (("--all",), "everything")]
)
def test_what_is_paused_is_resumed(run: Run, jobs: Jobs, scope: tuple[str, ...], name: str) -> None:
    jobs.worker("add", queues_=("ma*",))
    assert run("pause", *scope).out == f"{name} is paused\n"
    assert run("resume", *scope).out == f"{name} is resumed\n"
    assert run("resume", *scope).out == f"{name} is not paused\n"


def test_a_name_that_nobody_has_is_paused_with_a_hint(run: Run, jobs: Jobs) -> None:
    ran = run("pause", "mial")
    assert (ran.code, ran.out) == (
        0,
        "queue mial is paused, but no worker claims from a queue of that name, and no live job is in one: is the name "
        "right?\n",
    )
    assert "no worker knows a task of that name" in run("pause", "--task", "ad").out
    jobs.ready(queue="mail")
    assert run("pause", "mail").out == "queue mail is paused\n"


def test_resuming_says_what_is_still_paused(run: Run) -> None:
    run("pause", "mail")
    run("pause", "--all")
    assert run("resume", "--all").out == "everything is resumed\nstill paused: queue mail\n"


def test_a_worker_is_paused_and_stopped_by_its_id(run: Run, jobs: Jobs) -> None:
    worker = jobs.worker("add")
    assert run("pause", "--worker", worker).out == f"worker {worker} is paused\n"
    assert run("workers").out.splitlines()[1].split()[:2] == [worker, "paused"]
    assert run("stop", "--worker", worker).out == "asked 1 worker to stop\n"
    assert run("workers").out.splitlines()[1].split()[:2] == [worker, "stopping"]
    jobs.worker("add")
    assert run("stop", "--all").out == "asked 2 workers to stop\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_what_is_meant_must_be_said(run: Run, verb: str) -> None:
    nothing, both = run(verb), run(verb, "mail", "--all")
    assert (nothing.code, both.code) == (2, 2)
    assert f"what shall {verb}? Give QUEUE, --task NAME, --worker ID or --all" in nothing.err
    assert "not QUEUE and --all" in both.err
    assert "is not a worker's id" in run(verb, "--worker", "7").err
    unknown = run(verb, "--worker", str(uuid4()))
    assert unknown.code == 1
    assert "no worker" in unknown.err
