"""`stepwell pause`, `resume` and `stop`."""

from __future__ import annotations

from uuid import uuid4

import pytest
from cli.commands import Answer, Jobs, Run


@pytest.mark.parametrize(
    ("scope", "name"), [(("mail",), "queue mail"), (("--task", "add"), "task add"), (("--all",), "everything")]
)
def test_what_is_paused_is_resumed(run: Run, jobs: Jobs, scope: tuple[str, ...], name: str) -> None:
    jobs.worker("add", queues_=("ma*",))
    assert run("pause", *scope).out == f"{name} is paused\n"
    assert run("resume", *scope).out == f"{name} is resumed\n"
    assert run("resume", *scope).out == f"{name} is not paused\n"


def test_a_name_that_nobody_has_is_paused_with_a_hint(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", queues_=("ma*",))
    jobs.ready(queue="slow")
    ran = run("pause", "slwo")
    assert (ran.code, ran.out) == (0, "queue slwo is paused\n")
    assert ran.err == (
        "stepwell: warning: no live worker, schedule or recent job has the queue 'slwo': did you mean 'slow'?\n"
    )
    assert "has the task 'ad': did you mean 'add'?" in run("pause", "--task", "ad").err
    for known in (("slow",), ("mail",), ("--task", "add"), ("--all",)):
        assert run("pause", *known).err == ""


def test_resuming_a_name_that_nobody_has_is_an_error(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", queues_=("mail",))
    run("pause", "mail")
    ran = run("resume", "mial")
    assert (ran.code, ran.out) == (1, "queue mial is not paused\nstill paused: queue mail\n")
    assert "did you mean 'mail'?" in ran.err
    run("pause", "mial")
    assert run("resume", "mial").code == 0


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
    assert run("stop", "--all", "--yes").out == "asked 2 workers to stop\n"


def test_stopping_what_no_live_worker_does_is_an_error_and_asks_nothing_of_anybody(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", queues_=("mail*",))
    jobs.worker("dead", queues_=("dead",), lease=0)
    jobs.ready(queue="nope")
    for scope, said in (
        (("nope",), "no live worker claims from queue 'nope': 'stepwell workers' lists"),
        (("mail*",), "mail* is a queue pattern"),
        (("dead",), "no live worker claims from queue 'dead'"),
        (("--task", "ad"), "no live worker has task 'ad': did you mean 'add'?"),
    ):
        ran = run("stop", "-y", *scope)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.err
    assert jobs.connection.execute("select * from stepwell.controls").fetchall() == []
    assert run("stop", "-y", "mail-eu").out == "asked 1 worker to stop\n"


def test_stopping_all_when_none_lives_is_done_already(run: Run) -> None:
    ran = run("stop", "--all", "-y")
    assert (ran.code, ran.out, ran.err) == (0, "asked 0 workers to stop\n", "")


def test_many_workers_are_not_stopped_unless_somebody_says_yes(run: Run, jobs: Jobs) -> None:
    jobs.worker("add")
    for scope in (("--all",), ("default",), ("--task", "add")):
        ran = run("stop", *scope)
        assert (ran.code, ran.out) == (2, "")
        assert "there is no terminal to ask on: add --yes" in ran.err
    assert jobs.connection.execute("select * from stepwell.controls").fetchall() == []


def test_on_a_terminal_one_is_asked_before_many_workers_are_stopped(run: Run, jobs: Jobs, answer: Answer) -> None:
    jobs.worker("add")
    answer("n")
    ran = run("stop", "--all")
    assert (ran.code, ran.out.strip()) == (1, "")
    assert "stop 1 worker?" in ran.err
    assert jobs.connection.execute("select * from stepwell.controls").fetchall() == []
    answer("y")
    assert "asked 1 worker to stop\n" in run("stop", "--all").out


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_what_is_meant_must_be_said(run: Run, verb: str) -> None:
    nothing, both = run(verb), run(verb, "mail", "--all")
    assert (nothing.code, both.code) == (2, 2)
    assert f"{verb} what? Give QUEUE, --task NAME, --worker ID or --all" in nothing.err
    assert "not QUEUE and --all" in both.err
    assert "is not a worker's id" in run(verb, "--worker", "7").err
    unknown = run(verb, "--worker", str(uuid4()))
    assert unknown.code == 1
    assert "no worker" in unknown.err
