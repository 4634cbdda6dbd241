"""`stepwell schedules`."""

from __future__ import annotations

from datetime import datetime

import pytest
from cli.commands import Jobs, Run, make_schedule


def test_schedules_are_listed_and_shown(run: Run, jobs: Jobs) -> None:
    assert run("schedules", "list").out == "there are no schedules: a worker creates those in code when it starts\n"
    make_schedule(jobs, "nightly", "add")
    (listed,) = run("schedules", "list", "--json").json
    assert (listed["name"], listed["owner"], listed["cron"], listed["tz"]) == (
        "nightly",
        "shop",
        "0 3 * * *",
        "Europe/Paris",
    )
    line = run("schedules", "list").out.splitlines()[1]
    assert "0 3 * * * Europe/Paris" in line
    assert " in " in line
    job = run("schedules", "trigger", "nightly").out.strip()
    assert jobs.state(job) == "ready"
    shown = run("schedules", "show", "nightly", "-n", "2").out
    assert f"{job}, triggered" in shown
    assert shown.count("03:00:00+0") == 2
    whole = run("schedules", "show", "nightly", "--json").json
    assert len(whole["preview"]) == 5
    assert whole["ticks"][0]["job_id"] == job


def test_what_a_schedule_gives_its_jobs_is_shown(run: Run, jobs: Jobs) -> None:
    make_schedule(jobs, "plain", "add")
    make_schedule(jobs, "own", "add", metadata='{"tenant": "ä"}', max_attempts=4, policy='{"timeout": 9.0}')
    for name, told in (
        ("plain", ["none", "as the task", "as the task"]),
        ("own", ['{"tenant": "ä"}', "4", "timeout 9s"]),
    ):
        lines = run("schedules", "show", name).out.splitlines()
        shown = [line.removeprefix(field).strip() for field in ("metadata", "max attempts", "policy") for line in lines
                 if line.startswith(field)]  # fmt: skip
        assert shown == told


def test_a_policy_is_shown_in_words(run: Run, jobs: Jobs) -> None:
    retry = '{"backoff": "exponential", "initial": 2.0, "factor": 2.0, "cap": 3600.0, "jitter": 0.1}'
    policy = f'{{"retry": {retry}, "timeout": 30.0, "keep": "Infinity", "keep_failed": 0}}'
    said = "retry: 5 attempts, exponential from 2s to 1h; timeout 30s; keep forever; keep failed not at all"
    make_schedule(jobs, "own", "add", max_attempts=5, policy=policy)
    job = run("schedules", "trigger", "own").out.strip()
    for argv in (("schedules", "show", "own"), ("jobs", "show", job)):
        assert said in run(*argv).out


def test_a_schedule_is_paused_resumed_and_deleted(run: Run, jobs: Jobs) -> None:
    make_schedule(jobs, "nightly", "add")
    assert run("schedules", "show", "nihtly").err == (
        "stepwell: there is no schedule 'nihtly': did you mean 'nightly'?\n"
    )
    assert run("schedules", "pause", "nightly").out == "schedule nightly is paused\n"
    assert "paused" in run("schedules", "list").out
    assert run("schedules", "resume", "nightly").out == "schedule nightly is resumed\n"
    assert run("schedules", "list", "--json").json[0]["paused_at"] is None
    assert run("schedules", "delete", "nightly").out == "schedule nightly is deleted\n"
    ran = run("schedules", "delete", "nightly")
    assert (ran.code, ran.err) == (
        1,
        "stepwell: there is no schedule 'nightly': 'stepwell schedules list' lists them all\n",
    )


def test_of_two_apps_with_one_name_the_owner_must_be_given(run: Run, jobs: Jobs) -> None:
    for owner in ("bakery", "shop"):
        make_schedule(jobs, "nightly", "add", owner=owner)
    ran = run("schedules", "pause", "nightly")
    assert ran.code == 2
    assert "choose with --owner bakery or --owner shop" in ran.err
    assert run("schedules", "pause", "nightly", "--owner", "shop").code == 0
    paused = {each["owner"]: each["paused_at"] is not None for each in run("schedules", "list", "--json").json}
    assert paused == {"bakery": False, "shop": True}


def test_the_next_times_are_shown_without_a_database(run: Run) -> None:
    ran = run("schedules", "preview", "30 6 * * *", "--tz", "Asia/Tokyo", "-n", "3", "-d", "postgresql://nowhere")
    assert ran.code == 2  # it takes no database
    times = run("schedules", "preview", "30 6 * * *", "--tz", "Asia/Tokyo", "-n", "3").out.splitlines()
    assert [time.split()[1] for time in times] == ["06:30:00+09:00"] * 3
    assert [datetime.fromisoformat(at).second % 15 for at in run("schedules", "preview", "15s", "--json").json] == [
        0
    ] * 5


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("61 * * * *",), "minute is '61'"),
        (("0s",), "interval"),
        (("* * * * *", "--tz", "Mars"), "tz is 'Mars'"),
        (("* * * * *", "-n", "0"), "n"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(run: Run, argv: tuple[str, ...], said: str) -> None:
    ran = run("schedules", "preview", *argv)
    assert ran.code == 2
    assert said in ran.err


def test_a_schedule_is_backfilled_after_a_look_at_the_number(run: Run, jobs: Jobs) -> None:
    make_schedule(jobs, "nightly", "add")
    planned = run("schedules", "backfill", "nightly", "--since", "3d", "--dry-run").out
    assert planned == "3 ticks: 3 runs would be enqueued, 0 ran already\n"
    done = run("schedules", "backfill", "nightly", "--since", "3d", "--yes").out.splitlines()
    assert done[1] == "3 ticks: 3 runs were enqueued, 0 ran already"
    again = run("schedules", "backfill", "nightly", "--since", "3d", "-y").out
    assert again == "3 ticks: 0 runs will be enqueued, 3 ran already\n"
    assert run("jobs", "count").out == "3\n"
    for options, said in (
        (["--since", "2026-01-01"], "time zone"),
        (["--since", "often"], "--since"),
        (["--since", "1h", "--until", "2h", "--yes"], "since must be the earlier one"),
        (["--since", "1d"], "add --yes"),
    ):
        refused = run("schedules", "backfill", "nightly", *options)
        assert (refused.code, said in refused.err) == (2, True), refused.err
