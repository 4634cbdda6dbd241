"""`stepwell enqueue`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cli.commands import Jobs, Run

from stepwell import App, Worker


async def test_a_job_is_put_in_with_its_options(run: Run, app: App, jobs: Jobs) -> None:
    jobs.worker("greet", queues_=("mail",), owner="shop", named=True)
    options = ("-q", "mail", "--priority", "-3", "--run-at", "2031-02-03T04:05:06+01:00", "--max-attempts", "4")
    options += ("--owner", "shop")
    ran = run("enqueue", "greet", '{"name": "Ada"}', *options, "--metadata", '{"tenant": "ä"}')
    assert (ran.code, ran.err) == (0, "")
    job = await app.job(ran.out.strip()).ainfo()
    assert job is not None
    assert (job.task, job.args, job.queue, job.priority) == ("greet", {"name": "Ada"}, "mail", -3)
    assert (job.metadata, job.max_attempts, job.state) == ({"tenant": "ä"}, 4, "scheduled")
    assert job.owner == "shop"
    assert job.run_at == datetime(2031, 2, 3, 3, 5, 6, tzinfo=UTC)


async def test_a_job_takes_the_queue_and_priority_that_its_task_has_in_a_live_workers_code(run: Run, app: App) -> None:
    @app.task(queue="mail", priority=7)
    async def greet() -> None: ...

    async with Worker(app):
        ran = run("enqueue", "greet", "--delay", "1h")
        assert (ran.code, ran.err) == (0, "")
        job = await app.job(ran.out.strip()).ainfo()
        assert job is not None
        assert (job.queue, job.priority) == ("mail", 7)


async def test_args_are_an_empty_object_unless_given(run: Run, app: App) -> None:
    ran = run("enqueue", "tick", "--delay", "1h")
    job = await app.job(ran.out.strip()).ainfo()
    assert job is not None
    assert (job.args, job.queue, job.state) == ({}, "default", "scheduled")
    assert job.run_at is not None
    assert 3599 < (job.run_at - job.enqueued_at).total_seconds() < 3601


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("add", "{x"), "the argument after TASK is not JSON"),
        (("add", "[1]"), "is a JSON array, not an object"),
        (("add", "null"), "is a JSON null, not an object"),
        (("add", "true"), "is a JSON boolean, not an object"),
        (("add", "[" * 5000), "the argument after TASK"),
        (("",), "TASK is ''"),
        (("add", "--queue", "x" * 201), "--queue is"),
        (("add", "--delay", "soon"), "--delay is 'soon'"),
        (("add", "--run-at", "soon"), "--run-at is 'soon'"),
        (("add", "--run-at", "2031-01-01"), "without a time zone"),
        (("add", "--run-at", "2031-01-01T00:00:00Z", "--delay", "1s"), "cannot be combined"),
        (("add", "--metadata", "7"), "--metadata is a JSON number"),
        (("add", "--max-attempts", "0"), "--max-attempts"),
        (("add", "--priority", "40000"), "--priority"),
    ],
)
def test_what_makes_no_job_is_refused_before_the_database_is_asked(
    run_without_database: Run, argv: tuple[str, ...], said: str
) -> None:
    ran = run_without_database("enqueue", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_what_only_the_database_refuses_is_one_line_too(run: Run) -> None:
    for argv, said in (
        (("add", '{"x": "\\u0000"}'), "args hold a NUL character"),
        (("add", "--run-at", "9999-01-01T00:00:00Z"), "run_at must be between"),
    ):
        ran = run("enqueue", *argv)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert run("jobs", "list", "--json").json == []
