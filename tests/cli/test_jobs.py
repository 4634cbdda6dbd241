"""`stepwell jobs`."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import Any

import pytest
from cli.commands import Answer, Jobs, Run

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries import search
from stepwell.values.log_line import LogLine


def ids(run: Run, *options: str) -> list[str]:
    return [job["id"] for job in run("jobs", "list", "--json", *options).json]


def test_jobs_are_listed_newest_first_by_filters(run: Run, jobs: Jobs) -> None:
    first = jobs.failed()
    second = jobs.ready("greet", "{}", queue="mail", metadata='{"tenant": 7, "plan": "free"}')
    third = jobs.ready("greet", "{}", delay=3600, owner="shop")
    assert ids(run) == [third, second, first]
    assert ids(run, "--limit", "1") == [third]
    assert ids(run, "--state", "failed", "--state", "ready") == [second, first]
    assert ids(run, "--queue", "mail") == [second]
    assert ids(run, "--task", "greet") == [third, second]
    assert ids(run, "--metadata", '{"tenant": 7}') == [second]
    assert ids(run, "--owner", "shop") == [third]
    assert run("jobs", "list").out.splitlines()[1].split()[:5] == [third, "scheduled", "greet", "default", "shop"]
    assert ids(run, "--older-than", "1h") == []
    assert ids(run, "--newer-than", "1h") == [third, second, first]


def test_the_filters_of_list_are_those_of_count(run: Run, jobs: Jobs) -> None:
    failed, running = jobs.failed("Out of Stock"), jobs.running("slow")
    worker = run("jobs", "show", running, "--json").json["worker_id"]
    for options, wanted in (
        (("--error", "out of"), [failed]),
        (("--worker", worker), [running]),
        (("--state", "running", "-w", worker), [running]),
        (("--before", running), [failed]),
        ((), [running, failed]),
    ):
        assert ids(run, *options) == wanted
        if "--before" not in options:
            assert run("jobs", "count", *options).out == f"{len(wanted)}\n"
    assert run("jobs", "count", "--at-most", "1").out == "1\n"


def test_a_look_that_takes_too_long_is_an_error(run: Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 1)
    jobs.ready()
    jobs.ready()
    ran = run("jobs", "list", "--task", "rare", "--timeout", "0s")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("stepwell: found 0 of 50 jobs within 0s")
    assert run("jobs", "count", "--task", "rare", "--timeout", "0s").code == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("list", "--worker", "x"), "--worker is 'x'"),
        (("count", "--state", "done"), "--state is 'done'"),
        (("list", "--metadata", "[1]"), "--metadata is a JSON array"),
        (("list", "--older-than", "soon"), "--older-than is 'soon'"),
        (("list", "--timeout", "soon"), "--timeout is 'soon'"),
        (("list", "--before", "x"), "'x' is not a job's id"),
        (("cancel", "--state", "failed"), "--state is 'failed': cancel is for jobs that are"),
        (("run",), "which jobs? Give stepwell jobs run their ids"),
        (("move", "--all"), "move where?"),
        (("move", "--all", "--to", ""), "queue is ''"),
        (("move", "--all", "--run-at", "soon"), "--run-at is 'soon'"),
        (("delete", "--all", "--state", "ready"), "--state is 'ready': delete is for jobs that are"),
        (("edit", str(uuid.UUID(int=7)), "--args", "7"), "--args is a JSON number"),
        (("retry", str(uuid.UUID(int=7)), "--input", "7"), "--input needs a step"),
        (("retry", str(uuid.UUID(int=7)), "--step", "a", "--input", "{"), "--input is not JSON"),
        (("retry", str(uuid.UUID(int=7)), "--input", "7", "--from-start"), "cannot be combined"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(run: Run, argv: tuple[str, ...], said: str) -> None:
    ran = run("jobs", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_jobs_that_wait_for_their_time_are_run_now(run: Run, jobs: Jobs) -> None:
    later, failed, waits = jobs.ready(delay=3600.0), jobs.failed(task="two"), jobs.failed(task="three", delay=3600.0)
    running, absent = jobs.running("four"), str(uuid.uuid4())
    ran = run("jobs", "run", later, waits)
    assert (ran.code, ran.out) == (0, f"{later} is ready to run\n{waits} is ready to run\n")
    assert jobs.state(later) == "ready"
    ran = run("jobs", "run", later, failed, running, absent)
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{later} is already ready: nothing to run",
        f"{failed} is failed: 'stepwell jobs retry' runs it again",
        f"{running} is running already",
        f"{absent} is not known: it was never committed, or its history is no longer kept",
    ]


def test_named_fields_and_sealed_values_are_not_shown(run: Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = jobs.ready("one", '{"user": {"name": "ada", "Password": "abc"}}')
    sealed = jobs.ready("one", '{"$sealed":"fernet","data":"eHg="}')
    monkeypatch.setenv("STEPWELL_REDACT", "password, token")
    assert run("jobs", "show", job, "--json").json["args"] == {"user": {"name": "ada", "Password": "[redacted]"}}
    shown = run("jobs", "show", job).out
    assert "ada" in shown
    assert "abc" not in shown
    assert "(sealed by fernet)" in run("jobs", "show", sealed).out


def test_the_args_of_a_job_are_edited(run: Run, jobs: Jobs) -> None:
    ready, failed, running = jobs.ready("one"), jobs.failed(task="two"), jobs.running("three")
    ran = run("jobs", "edit", ready, "--args", '{"x": 2}')
    assert (ran.code, ran.out) == (0, f"{ready} has new args and is ready\n")
    assert run("jobs", "show", ready, "--json").json["args"] == {"x": 2}
    ran = run("jobs", "edit", failed, "--args", '{"x": 3}')
    assert ran.out == f"{failed} has new args and is failed: 'stepwell jobs retry' runs it\n"
    ran = run("jobs", "edit", running, "--args", "{}")
    assert (ran.code, ran.out) == (1, "")
    assert f"job {running} is running: only a job that is ready" in ran.err
    absent = str(uuid.uuid4())
    assert f"there is no job {absent}" in run("jobs", "edit", absent, "--args", "{}").err


@pytest.mark.slow
def test_a_change_that_is_interrupted_says_how_far_it_came_and_how_to_go_on(
    run: Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.connection.execute("select stepwell.enqueue('many') from generate_series(1, 1500)")
    chunk, calls = queries.bulk.chunk, iter(range(9))

    def interrupted(bulk_id: str) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return chunk(bulk_id)

    with monkeypatch.context() as patched:
        patched.setattr(queries.bulk, "chunk", interrupted)
        ran = run("jobs", "cancel", "--task", "many", "--yes")
    assert (ran.code, ran.out) == (130, "")
    [operation] = run("bulk", "--json").json
    changed = operation["done"]
    assert (operation["state"], operation["expected"]) == ("running", None)
    assert 0 < changed < 1500
    assert ran.err == (
        f"stepwell: interrupted after {changed} jobs: no worker is alive, so the rest waits for one. 'stepwell bulk "
        f"stop {operation['id']}' stops the operation, 'stepwell bulk continue {operation['id']}' goes on here\n"
    )
    ran = run("bulk", "continue", operation["id"])
    assert (ran.code, ran.out) == (0, "done: 1500 jobs changed, 0 skipped, 0 failed\n")
    assert "there is nothing to stop" in run("bulk", "stop", operation["id"]).err
    assert "cannot be continued" in run("bulk", "continue", operation["id"]).err


def test_a_list_for_people_has_whole_ids_and_no_colours(run: Run, jobs: Jobs) -> None:
    job = jobs.failed("out of stock")
    lines = run("jobs", "list").out.splitlines()
    assert lines[0].split() == ["id", "state", "task", "queue", "attempt", "enqueued", "due", "error"]
    assert lines[1].split()[:5] == [job, "failed", "add", "default", "1"]
    assert lines[1].endswith("ValueError: out of stock")
    assert "\x1b" not in "".join(lines)


def test_a_job_that_waits_for_its_next_try_is_listed_with_its_last_error(run: Run, jobs: Jobs) -> None:
    jobs.failed("the first", delay=3600)
    jobs.ready(delay=3600.0)
    waits, failed = run("jobs", "list", "--json").json
    assert (waits["state"], waits["error"]) == ("scheduled", None)
    assert (failed["state"], failed["error"]) == ("scheduled", "ValueError: the first")
    assert "ValueError: the first" in run("jobs", "list").out


def test_running_jobs_are_listed_with_their_worker_their_progress_and_how_long_they_run(run: Run, jobs: Jobs) -> None:
    jobs.ready("greet", "{}")
    job = jobs.running()
    jobs.connection.execute(
        "update stepwell.job set progress = %s, claimed_at = claimed_at - interval '90 minutes' where id = %s",
        ('{"done": 3, "say": "\\u001b[31m"}', job),
    )
    (as_json,) = run("jobs", "list", "--state", "running", "--json").json
    assert as_json["progress"] == {"done": 3, "say": "\x1b[31m"}
    heading, line = run("jobs", "list", "--state", "running").out.splitlines()
    assert heading.split() == ["id", "state", "task", "queue", "attempt", "since", "for", "worker", "progress"]
    assert line.split()[:5] == [job, "running", "add", "default", "1"]
    since = datetime.fromisoformat(" ".join(line.split()[5:7]))
    assert since == datetime.fromisoformat(as_json["claimed_at"]).replace(microsecond=since.microsecond)
    assert line.split()[7:9] == ["1.5h", as_json["worker_id"]]
    assert line.endswith('{"done": 3, "say": "\\u001b[31m"}')
    run("jobs", "cancel", job)
    assert run("jobs", "list", "--state", "running").out.splitlines()[1].split()[1] == "cancelling"
    assert run("jobs", "list", "--state", "running", "--task", "greet").out == "no job matches\n"


def test_an_empty_list_says_so(run: Run) -> None:
    assert run("jobs", "list").out == "no job matches\n"
    assert run("jobs", "list", "--json").json == []


def test_a_job_is_shown_with_its_failed_attempts(run: Run, jobs: Jobs) -> None:
    job = jobs.failed("out of stock", args='{"x": 1, "note": "ä"}', metadata='{"tenant": 7}')
    shown = run("jobs", "show", job)
    assert (shown.code, shown.err) == (0, "")
    for said in (job, "failed", '{"x": 1, "note": "ä"}', '{"tenant": 7}', "attempt 1 failed at", "  the line"):
        assert said in shown.out
    as_json = run("jobs", "show", job, "--json").json
    assert (as_json["id"], as_json["state"], as_json["args"]) == (job, "failed", {"x": 1, "note": "ä"})
    assert as_json["enqueued_at"].endswith("+00:00")
    (failure,) = as_json["failures"]
    assert (failure["reason"], failure["type"], failure["message"]) == ("error", "ValueError", "out of stock")
    assert "the line" in failure["traceback"]


def test_a_result_is_shown_and_what_is_kept_for_ever_too(run: Run, jobs: Jobs) -> None:
    job = jobs.succeeded('{"total": 3}', keep=float("inf"))
    shown = run("jobs", "show", job)
    assert (shown.code, shown.err) == (0, "")
    assert '{"total": 3}' in shown.out
    as_json = run("jobs", "show", job, "--json").json
    assert (as_json["result"], as_json["expires_at"]) == ({"total": 3}, None)
    assert ids(run) == [job]


def test_a_job_that_is_not_there_is_an_error(run: Run) -> None:
    ran = run("jobs", "show", str(uuid.uuid4()))
    assert (ran.code, ran.out) == (1, "")
    assert "there is no job" in ran.err


def test_retrying_by_id_says_what_became_of_each(run: Run, jobs: Jobs) -> None:
    succeeded, failed, waits = jobs.succeeded(), jobs.failed(), jobs.failed(delay=3600)
    running, absent = jobs.running(), str(uuid.uuid4())
    ran = run("jobs", "retry", failed, waits, failed)
    assert (ran.code, ran.out) == (0, f"{failed} is ready to run again\n{waits} is ready to run again\n")
    ran = run("jobs", "retry", failed, succeeded, running, absent)
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{failed} is already ready: nothing to retry",
        f"{succeeded} has already succeeded: nothing to retry",
        f"{running} is running: nothing to retry",
        f"{absent} is not known: it was never committed, or its history is no longer kept",
    ]


def test_a_reason_that_is_too_long_is_refused_before_anything_is_cancelled(run: Run, jobs: Jobs) -> None:
    ready = jobs.ready()
    for which in ([ready], ["--all", "--yes"]):
        ran = run("jobs", "cancel", *which, "--reason", "x" * 10_001)
        assert (ran.code, ran.out) == (2, "")
        assert "reason has 10001 characters" in ran.err
    assert jobs.state(ready) == "ready"


def test_cancelling_by_id_says_what_became_of_each(run: Run, jobs: Jobs) -> None:
    succeeded, failed, running, ready = jobs.succeeded(), jobs.failed(), jobs.running(), jobs.ready()
    ran = run("jobs", "cancel", ready, running, "--reason", "not wanted")
    assert ran.code == 0
    assert ran.out.splitlines() == [f"{ready} is cancelled", f"{running} is running: its worker was asked to stop it"]
    assert run("jobs", "show", ready, "--json").json["error"] == "not wanted"
    assert "running, asked to stop" in run("jobs", "show", running).out
    ran = run("jobs", "cancel", ready, succeeded, failed)
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{ready} is already cancelled: nothing to cancel",
        f"{succeeded} has already succeeded: nothing to cancel",
        f"{failed} has already failed: nothing to cancel",
    ]


def test_retrying_by_filter_takes_the_failed_ones_unless_told(run: Run, jobs: Jobs) -> None:
    failed, waits = jobs.failed(task="add"), jobs.failed(task="greet", delay=3600)
    planned = jobs.ready("greet", "{}", delay=3600)
    cancelled = jobs.ready("add")
    run("jobs", "cancel", cancelled)
    assert run("jobs", "retry", "--task", "greet", "-y").out == "retried 0 jobs\n"
    assert run("jobs", "retry", "--all", "-y").out == "retried 1 job\n"
    assert jobs.state(failed) == "ready"
    assert run("jobs", "retry", "-y", "--state", "scheduled", "--state", "cancelled").out == "retried 2 jobs\n"
    assert [jobs.state(job) for job in (waits, cancelled, planned)] == ["ready", "ready", "scheduled"]


@pytest.mark.slow
def test_cancelling_by_filter_works_in_batches_and_meets_running_jobs_once(run: Run, jobs: Jobs) -> None:
    running = jobs.running()
    jobs.connection.execute("select stepwell.enqueue('many') from generate_series(1, 2500)")
    other = jobs.ready("other")
    assert run("jobs", "cancel", "--task", "many", "-y").out == "cancelled 2500 jobs\n"
    assert jobs.state(other) == "ready"
    assert run("jobs", "cancel", "--all", "-y").out == "cancelled 1 job; asked the workers of 1 running to stop them\n"
    assert jobs.state(running) == "running"


@pytest.mark.parametrize("verb", ["retry", "cancel"])
def test_which_jobs_are_meant_must_be_said(run: Run, jobs: Jobs, verb: str) -> None:
    job = jobs.ready()
    for argv in ((), (job, "--all"), (job, "--task", "add"), ("--state", "succeeded"), ("nonsense",)):
        ran = run("jobs", verb, *argv)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1
    assert jobs.state(job) == "ready"


@pytest.mark.parametrize(("typed", "code", "state"), [("n", 1, "ready"), ("y", 0, "cancelled")])
def test_on_a_terminal_one_is_asked_first(
    run: Run, jobs: Jobs, answer: Answer, typed: str, code: int, state: str
) -> None:
    job = jobs.ready()
    answer(typed)
    ran = run("jobs", "cancel", "--task", "add")
    assert ran.code == code
    assert "cancel 1 job?" in ran.err
    assert ("cancelled 1 job" in ran.out) is (code == 0)
    assert jobs.state(job) == state


@pytest.mark.usefixtures("answer")
def test_on_a_terminal_yes_asks_nothing(run: Run, jobs: Jobs) -> None:
    job = jobs.ready()
    ran = run("jobs", "cancel", "--all", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, "cancelled 1 job\n", "")
    assert jobs.state(job) == "cancelled"


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize("which", [("--all",), ("--task", "add"), ("--older-than", "0s")])
def test_without_a_terminal_nothing_is_changed_unless_yes_is_said(
    run: Run, jobs: Jobs, verb: str, which: tuple[str, ...]
) -> None:
    ready, failed = jobs.ready("greet"), jobs.failed()
    ran = run("jobs", verb, *which)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"stepwell: jobs {verb} changes all that match, and there is no terminal to ask on: add --yes (-y)\n"
    )
    assert (jobs.state(ready), jobs.state(failed)) == ("ready", "failed")


def test_deep_and_odd_json_is_printed_as_json(run: Run, jobs: Jobs) -> None:
    odd = '{"x": "\\ud800", "y": [1.5, null, 12345678901234567890]}'
    job = jobs.ready(args=odd)
    assert run("jobs", "show", job, "--json").json["args"] == {**json.loads(odd), "x": "\ufffd"}
    assert "\\ud800" in run("jobs", "show", job).out


def test_a_job_says_why_it_waits(run: Run, jobs: Jobs) -> None:
    job = jobs.ready(queue="mail")
    jobs.worker("add")
    ran = run("jobs", "why", job)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "cause    no worker for queue",
        "subject  no live worker that knows its task claims from the queue 'mail'",
        "next     start one: stepwell worker MODULE:APP --queue mail",
    ]
    assert run("jobs", "why", job, "--json").json["cause"] == "no_worker_for_queue"
    later = run("jobs", "why", jobs.ready(delay=3600.0)).out.splitlines()
    assert [line.split()[0] for line in later] == ["cause", "subject", "until", "next"]
    missing = run("jobs", "why", str(uuid.UUID(int=7)))
    assert (missing.code, "there is no job" in missing.err) == (1, True)


def test_the_log_lines_of_a_job_are_shown(run: Run, jobs: Jobs) -> None:
    job = jobs.succeeded()
    lines = [
        LogLine(job, attempt, 1_900_000_000.0 + n, level, "shop", f"line {n}\x1b[31m")
        for n, (attempt, level) in enumerate([(1, 20), (2, 30)], 1)
    ]
    assert "needs logs=True" in run("jobs", "logs", job).err
    fetch(jobs.connection, queries.logs.write_logs(lines, {}))
    shown = run("jobs", "logs", job).out.splitlines()
    assert "INFO     shop #1: line 1\\x1b[31m" in shown[0]
    assert "WARNING  shop #2: line 2" in shown[1]
    assert run("jobs", "logs", job, "--follow").out.splitlines() == shown
    assert [line["line"] for line in run("jobs", "logs", job, "--level", "warning", "--json").json] == [2]
    assert "one of debug, info" in run("jobs", "logs", job, "--level", "loud").err
    assert "there is no job" in run("jobs", "logs", str(uuid.uuid4())).err


def test_a_job_that_does_not_run_has_no_stack(run: Run, jobs: Jobs) -> None:
    assert "it is ready: only a running job" in run("jobs", "stack", jobs.ready()).err
    assert "there is no job" in run("jobs", "stack", str(uuid.uuid4())).err
