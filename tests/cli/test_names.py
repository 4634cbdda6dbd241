"""Names that nothing is known by, in the commands that take one."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from cli.commands import Jobs, Run, make_schedule

from stepwell.cli.known_names import doubts
from stepwell.errors.text import nearest


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--task", "chekout"), "the task 'chekout': did you mean 'checkout'?"),
        (("--task", "shop.jobs:checkout"), "the task 'shop.jobs:checkout': did you mean 'checkout'?"),
        (("--queue", "mial"), "the queue 'mial': did you mean 'mail'?"),
        (("--owner", "shpo"), "the owner 'shpo': did you mean 'shop'?"),
        (("--queue", "\x1b[31m" * 20), "no live worker, schedule or recent job has the queue"),
    ],
)
def test_changing_jobs_under_a_name_that_nothing_has_is_an_error(
    run: Run, jobs: Jobs, verb: str, typed: tuple[str, str], said: str
) -> None:
    job = jobs.ready("checkout", queue="mail", owner="shop")
    ran = run("jobs", verb, "-y", *typed)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err
    assert "\x1b" not in ran.err
    assert jobs.state(job) == "ready"


def test_changing_no_job_under_a_name_that_something_has_is_no_error(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", queues_=("ma*",), owner="shop")
    jobs.succeeded(task="greet", queue="default")
    make_schedule(jobs, "nightly", "clean", owner="depot")
    for which in (
        ("--task", "add"),
        ("--task", "greet"),
        ("--task", "clean"),
        ("--queue", "mail"),
        ("--owner", "shop"),
        ("--owner", "depot"),
        ("--older-than", "1h"),
    ):
        ran = run("jobs", "cancel", "-y", *which)
        assert (ran.code, ran.out, ran.err) == (0, "cancelled 0 jobs\n", "")


def test_an_empty_list_under_a_name_that_nothing_has_is_warned_about(run: Run, jobs: Jobs) -> None:
    jobs.ready("checkout", queue="mail")
    ran = run("jobs", "list", "--queue", "mial", "--task", "chekout", "--json")
    assert (ran.code, ran.json) == (0, [])
    assert [line.split(": ")[-1] for line in ran.err.splitlines()] == [
        "did you mean 'mail'?",
        "did you mean 'checkout'?",
    ]
    counted = run("jobs", "count", "--queue", "mial", "--task", "chekout")
    assert (counted.code, counted.out, counted.err) == (0, "0\n", ran.err)
    for known in (("--queue", "mail"), ("--queue", "mail", "--state", "failed"), ()):
        for verb in ("list", "count"):
            assert run("jobs", verb, *known).err == ""


def test_a_job_of_a_task_that_nothing_has_is_enqueued_with_a_warning_each_time(run: Run, jobs: Jobs) -> None:
    jobs.worker("checkout")
    for _ in range(2):
        ran = run("enqueue", "chekout", "-q", "defalt")
        assert ran.code == 0
        assert jobs.state(ran.out.strip()) == "ready"
        assert "has the task 'chekout': did you mean 'checkout'?" in ran.err
        assert "has the queue 'defalt': did you mean 'default'?" in ran.err
    assert run("enqueue", "checkout", "-q", "default").err == ""


def test_a_task_that_has_run_before_is_known_though_its_worker_is_gone(run: Run, jobs: Jobs) -> None:
    jobs.succeeded(task="checkout")
    jobs.connection.execute("update stepwell.worker set lease_until = 'epoch'")
    assert run("enqueue", "checkout").err == ""
    jobs.connection.execute("delete from stepwell.job")
    jobs.connection.execute("delete from stepwell.history")
    assert "has the task 'checkout'" in run("enqueue", "checkout").err
    jobs.connection.execute(
        "insert into stepwell.stat (minute, task, queue) values (date_trunc('minute', now()), 'checkout', 'default')"
    )
    assert run("enqueue", "checkout").err == ""


def test_a_role_that_may_enqueue_and_not_look_is_not_warned(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute("create role producer_only")
        conn.execute("grant usage on schema stepwell to producer_only")
        conn.execute("set role producer_only")
        with conn.transaction(force_rollback=True):
            assert doubts(conn, {"task": "chekout"}) == []


def test_the_queue_of_a_deep_backlog_is_known_however_old_it_is(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    jobs.ready(queue="old")
    conn.execute("select stepwell.enqueue_many('{work}', array_fill('{}'::text, '{10001}'))")
    assert doubts(conn, {"queue": "old"}) == []
    assert doubts(conn, {"queue": "older"}) != []


def test_the_nearest_of_many_long_names_is_found() -> None:
    known = {f"tenant-{number:05d}-{'x' * 150}" for number in range(2000)}
    assert nearest("tenant-00007" + "x" * 150, known).startswith(": did you mean 'tenant-0")
    assert nearest("mail", known) == ""


def test_json_output_is_not_mixed_with_warnings(run: Run) -> None:
    ran = run("jobs", "list", "--task", "nobody", "--json")
    assert json.loads(ran.out) == []
    assert ran.err.startswith("stepwell: warning: ")


def test_a_mistyped_name_is_named_before_a_terminal_is_asked_for(run: Run, jobs: Jobs) -> None:
    jobs.worker("checkout")
    for command in (("jobs", "cancel", "--task"), ("jobs", "retry", "--task"), ("stop", "--task")):
        ran = run(*command, "chekout")
        assert (ran.code, ran.out) == (1, "")
        assert "did you mean 'checkout'?" in ran.err
