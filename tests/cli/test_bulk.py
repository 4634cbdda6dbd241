"""`stepwell bulk`, and the commands that delete and move jobs."""

from __future__ import annotations

import os
import pty
import uuid
from contextlib import suppress

import pytest
from cli.commands import Answer, Jobs, Run, Start

from stepwell.cli.bulk import find, work_off
from stepwell.cli.database import open_database
from stepwell.jobs.bulk import retrying
from stepwell.jobs.bulk_operation import count_bulk, start_bulk
from stepwell.postgres import query_plan as plan
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.queries.search import JobMatch


def test_a_bulk_operation_is_listed_shown_and_stopped(run: Run, jobs: Jobs) -> None:
    assert run("bulk").out == "there are no bulk operations\n"
    failed = jobs.failed()
    row = jobs.connection.execute(
        "select stepwell.start_bulk('retry', '{\"queue\": \"\\u001b[31m\"}', '{}', 3, 'ada')::text"
    ).fetchone()
    assert row is not None
    bulk = row[0]
    lines = run("bulk").out.splitlines()
    assert lines[1].split()[:7] == [bulk, "retry", "running", "0", "0", "0", "3"]
    assert "\x1b" not in lines[1]
    jobs.connection.execute("update stepwell.bulk set started_at = now() - interval '1 minute'")
    shown = run("bulk", "show", bulk).out
    assert "running, but idle for 1m" in shown
    assert "asked by" in shown
    assert f"'stepwell bulk continue {bulk}'" in shown
    assert run("bulk", "show", bulk, "--json").json["filter"] == {"queue": "\x1b[31m", "states": ["failed"]}
    assert run("bulk", "stop", bulk).out == "stopped: 0 jobs were changed before\n"
    assert jobs.state(failed) == "failed"


def test_a_long_list_of_operations_says_how_to_see_the_others(run: Run, jobs: Jobs) -> None:
    jobs.connection.execute("select stepwell.start_bulk('retry', '{}') from generate_series(1, 101)")
    first = run("bulk").out.splitlines()
    assert len(first) == 102
    last = first[-2].split()[0]
    assert first[-1] == f"there are more: add --before {last}"
    [_, older] = run("bulk", "--before", last).out.splitlines()
    assert older.split()[0] < last
    assert [each["id"] for each in run("bulk", "--limit", "1", "--before", last, "--json").json] == [older.split()[0]]
    assert run("bulk", "--before", older.split()[0]).out == "there are no older ones\n"
    assert run("bulk", "--before", "x").code == 2


@pytest.mark.parametrize("command", ["show", "stop", "continue"])
def test_an_operation_that_does_not_exist_is_refused(run: Run, jobs: Jobs, command: str) -> None:
    ran = run("bulk", command, str(uuid.uuid4()))
    assert (ran.code, ran.out) == (1, "")
    assert "there is no bulk operation" in ran.err
    typed = run("bulk", command, "x")
    assert typed.code == 2
    assert "'x' is not the id of a bulk operation: 'stepwell bulk' lists them" in typed.err


def test_ended_jobs_are_deleted_and_live_ones_are_not(run: Run, jobs: Jobs) -> None:
    failed, ready, running = jobs.failed(), jobs.ready("other"), jobs.running("third")
    ran = run("jobs", "delete", failed, ready, running)
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{failed} is deleted",
        f"{ready} is ready: cancel it first",
        f"{running} is running: cancel it first, and delete it when it has ended",
    ]
    jobs.failed()
    assert run("jobs", "delete", "--all").code == 2
    assert run("jobs", "delete", "--all", "-y").out == "deleted 1 job\n"
    assert run("jobs", "count").out == "2\n"


def test_jobs_are_moved_to_another_queue_priority_and_time(run: Run, jobs: Jobs) -> None:
    ready, running = jobs.ready("one"), jobs.running("two")
    ran = run("jobs", "move", ready, running, "--to", "a/b", "--priority", "5")
    assert (ran.code, ran.out) == (1, f"{ready} is moved\n{running} is running: nothing to move\n")
    assert run("jobs", "move", "--queue", "a/b", "--run-at", "2099-01-01T00:00+00:00", "-y").out == "moved 1 job\n"
    info = run("jobs", "show", ready, "--json").json
    assert (info["queue"], info["priority"], info["state"]) == ("a/b", 5, "scheduled")
    assert run("jobs", "run", "--state", "scheduled", "-y").out == "made ready 1 job\n"
    assert jobs.state(ready) == "ready"


def test_what_was_confirmed_is_stored(run: Run, jobs: Jobs, answer: Answer) -> None:
    jobs.failed()
    answer("y")
    assert "retried 1 job" in run("jobs", "retry", "--all").out
    [operation] = run("bulk", "--json").json
    assert operation["expected"] == 1
    assert operation["asked_by"] == run("audit", "--json").json[0]["who"]


def test_jobs_that_fail_while_a_person_thinks_are_left(dsn: str, jobs: Jobs) -> None:
    older, change = jobs.failed(), retrying()
    which = change.narrow(JobMatch(newer_than=3600.0))
    with open_database(dsn) as database:
        counted = plan.run(count_bulk(change, which), database)
        newer = jobs.failed()
        bulk_id = plan.run(start_bulk(change, which, "ada", counted), database)
        operation = work_off(database, find(database, bulk_id))
    assert (counted.count, operation.expected, operation.done) == (1, 1, 1)
    assert (jobs.state(older), jobs.state(newer)) == ("ready", "failed")


def test_the_question_counts_no_scheduled_jobs_that_a_retry_leaves(run: Run, jobs: Jobs, answer: Answer) -> None:
    jobs.ready(delay=3600.0)
    jobs.failed(delay=3600.0)
    answer("y")
    ran = run("jobs", "retry", "--state", "scheduled")
    assert ("retry 1 job?" in ran.err, ran.out.strip()) == (True, "retried 1 job")


def test_a_job_that_could_not_be_changed_is_reported(run: Run, jobs: Jobs, dsn: str) -> None:
    failed, other = jobs.failed(), jobs.failed()
    with jobs.connection.transaction():
        jobs.connection.execute("select from stepwell.history where id = %s for update", (failed,))
        ran = run("jobs", "retry", "--all", "-y")
    assert (ran.code, ran.out) == (1, "retried 1 job\n")
    assert f"1 job could not be changed, the last because of: job {failed}" in ran.err
    assert (jobs.state(failed), jobs.state(other)) == ("failed", "ready")


@pytest.mark.slow
def test_a_terminal_shows_how_far_a_bulk_operation_is(start: Start, jobs: Jobs) -> None:
    failed, other = jobs.failed(), jobs.failed()
    ours, theirs = pty.openpty()
    there = {ENVIRONMENT: jobs.connection.info.dsn, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
    # The lock keeps the operation for longer than a command is quiet.
    with jobs.connection.transaction():
        jobs.connection.execute("select from stepwell.history where id = %s for update", (failed,))
        process = start("jobs", "retry", "--all", fresh=True, stdin=theirs, stderr=theirs, env={**os.environ, **there})
        os.close(theirs)
        os.write(ours, b"y\n")
        said = b""
        with suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 4096):
                said += chunk
        assert process.wait(60) == 1
    os.close(ours)
    assert b"retry 2 jobs?" in said
    assert b"retrying" in said
    assert b"2 of 2" in said
    assert (jobs.state(failed), jobs.state(other)) == ("failed", "ready")
