"""`stepwell doctor`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli.commands import Jobs, Run, make_schedule
from deaf import deaf
from psycopg.conninfo import make_conninfo

from stepwell.doctor.database import judge_snapshots
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.health import SnapshotHolder

CHECKS = [
    "schema",
    "notifications",
    "oldest ready job",
    "dead rows",
    "oldest snapshot",
    "unknown tasks",
    "misfits",
    "shared tasks",
    "pauses",
    "schedules",
    "default partitions",
    "workers",
]


def examine(run: Run, *argv: str) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in run("doctor", "--json", *argv).json}


def test_a_healthy_database_has_nothing_but_ok(run: Run, jobs: Jobs) -> None:
    jobs.worker("add")
    jobs.ready()
    ran = run("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["ok"] * len(CHECKS)
    assert [finding["check"] for finding in run("doctor", "--json").json] == CHECKS


def test_without_the_schema_the_doctor_says_what_to_do(run: Run, empty_dsn: str) -> None:
    ran = run("doctor", "-d", empty_dsn)
    assert ran.code == 1
    assert ran.err == ""
    assert 'run "stepwell migrate"' in ran.out.splitlines()[0]
    assert [line.count(", ") for line in ran.out.splitlines() if "not checked" in line] == [8]
    found = examine(run, "-d", empty_dsn)
    assert found["schema"]["status"] == "problem"
    assert found["notifications"]["status"] == "ok"
    assert "not checked" in found["unknown tasks"]["text"]
    assert "not checked" in found["dead rows"]["text"]


def test_ready_jobs_that_no_live_worker_runs_are_counted(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", queues_=("default",))
    jobs.worker("greet", lease=0)
    jobs.ready("add")
    jobs.ready("add", queue="mail")
    jobs.ready("greet", "{}")
    jobs.ready("greet", "{}")
    jobs.ready("greet", "{}", delay=60)
    finding = examine(run)["unknown tasks"]
    assert finding["status"] == "problem"
    assert finding["details"] == [
        {"queue": "default", "task": "greet", "owner": None, "count": 2},
        {"queue": "mail", "task": "add", "owner": None, "count": 1},
    ]
    assert run("doctor").code == 1


def test_ready_jobs_of_an_owner_need_a_worker_of_that_app(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", owner="shop.jobs", named=False)
    jobs.worker("add", owner="billing", named=True)
    jobs.ready("add", owner="billing")
    jobs.ready("add")
    assert examine(run)["unknown tasks"]["status"] == "ok"
    jobs.ready("add", owner="shop")
    finding = examine(run)["unknown tasks"]
    assert finding["details"] == [{"queue": "default", "task": "add", "owner": "shop", "count": 1}]
    assert "that belong to app shop" in finding["text"]


def test_jobs_that_wait_for_other_code_are_counted_with_what_is_wrong(run: Run, jobs: Jobs) -> None:
    job_id = jobs.running()
    held = queries.outcomes.hold_misfits([job_id], [1], [7], ["it does not know 'title'"], [3600.0])
    assert fetch(jobs.connection, held)[0].expired == []
    finding = examine(run)["misfits"]
    assert finding["status"] == "warning"
    assert "1 of add (for example: it does not know 'title')" in finding["text"]
    shown = run("jobs", "show", job_id).out
    assert "for a worker whose code fits its args" in shown
    assert "it does not know 'title'" in shown
    assert run("jobs", "retry", "--state", "scheduled", "--task", "add", "--yes").code == 0
    assert jobs.state(job_id) == "ready"


def test_a_task_that_two_apps_have_is_named_with_both(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", "greet", owner="billing", named=True)
    jobs.worker("greet", owner="billing", named=True)
    assert examine(run)["shared tasks"]["status"] == "ok"
    jobs.worker("add", owner="shop", named=True)
    named = examine(run)["shared tasks"]
    assert (named["status"], named["details"]) == (
        "ok",
        [{"task": "add", "owners": ["billing", "shop"], "named": True}],
    )
    jobs.worker("greet", owner="shop.jobs", named=False)
    finding = examine(run)["shared tasks"]
    assert finding["status"] == "warning"
    assert "greet (billing, shop.jobs)" in finding["text"]
    assert "add" not in finding["text"]
    assert "App(name=...)" in finding["text"]


def test_a_worker_that_claims_by_pattern_covers_the_queues_that_fit(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", queues_=("mail.*", "reports"))
    for queue in ("mail.eu", "mail", "reports", "reports.eu"):
        jobs.ready("add", queue=queue)
    assert [found["queue"] for found in examine(run)["unknown tasks"]["details"]] == ["mail", "reports.eu"]
    jobs.worker("add", queues_=("*",))
    assert examine(run)["unknown tasks"]["status"] == "ok"


def test_jobs_without_any_worker_are_of_no_unknown_task(run: Run, jobs: Jobs) -> None:
    jobs.ready("add")
    found = examine(run)["unknown tasks"]
    assert found["status"] == "problem"
    assert found["text"] == "no worker is alive, and ready jobs wait: 1 of add in queue default: start one"
    jobs.worker("other")
    assert examine(run)["unknown tasks"]["text"].startswith("no live worker runs 1 of add")


@pytest.mark.parametrize(("waits", "status"), [("2 minutes", "warning"), ("1 hour", "problem")])
def test_a_job_that_waits_long_is_named(run: Run, jobs: Jobs, waits: str, status: str) -> None:
    job = jobs.ready()
    jobs.ready(queue="mail")
    jobs.connection.execute("insert into stepwell.clock (at) select clock_timestamp() + %s::interval", (waits,))
    finding = examine(run)["oldest ready job"]
    assert finding["status"] == status
    assert f"add {job} in queue default has been due for" in finding["text"]
    assert finding["text"].endswith(": no live worker runs that task from that queue: start one")
    jobs.worker("add")
    assert "start more workers for that queue" in examine(run)["oldest ready job"]["text"]


def test_a_job_in_a_paused_queue_waits_because_of_that(run: Run, jobs: Jobs) -> None:
    jobs.ready(queue="mail")
    run("pause", "mail")
    finding = examine(run)["oldest ready job"]
    assert finding["status"] == "warning"
    assert '"stepwell resume mail"' in finding["text"]


def test_a_worker_that_fell_silent_is_a_problem_if_nobody_can_rescue_its_jobs(run: Run, jobs: Jobs) -> None:
    dead = jobs.worker("add", lease=0)
    finding = examine(run)["workers"]
    assert (finding["status"], finding["details"][0]["id"]) == ("problem", dead)
    jobs.worker("add")
    assert examine(run)["workers"]["status"] == "warning"


def test_rows_without_a_partition_of_their_own_are_counted(run: Run, jobs: Jobs) -> None:
    jobs.succeeded(keep=300 * 86400.0)
    finding = examine(run)["default partitions"]
    assert (finding["status"], finding["details"]) == ("warning", [{"history": 1, "failure": 0}])


def test_who_holds_the_oldest_snapshot_is_named(run: Run, dsn: str) -> None:
    with psycopg.connect(dsn, application_name="a [long] report") as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1")
        finding = examine(run)["oldest snapshot"]
        assert finding["status"] == "ok"
        assert f"session a [long] report pid {other.info.backend_pid}" in finding["text"]
        assert finding["details"][0]["state"] == "idle in transaction"
        other.rollback()


def holder(**known: Any) -> SnapshotHolder:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    fields: dict[str, Any] = {
        "kind": "session",
        "pid": 7,
        "user": "ada",
        "name": "report",
        "state": "active",
        "since": at,
        "query_start": at,
        "seconds": 1.0,
        "xids": 10,
    }
    return SnapshotHolder(**{**fields, **known})


@pytest.mark.parametrize(
    ("held", "status", "act"),
    [
        (holder(), "ok", ""),
        (holder(seconds=600.0), "warning", "pg_terminate_backend(7)"),
        (holder(seconds=7200.0), "problem", "pg_terminate_backend(7)"),
        (holder(kind="prepared transaction", pid=None, seconds=7200.0), "problem", "rollback prepared"),
        (holder(kind="replication slot", since=None, seconds=None, xids=2_000_000), "warning", "drop the slot"),
    ],
)
def test_an_old_snapshot_comes_with_the_way_to_end_it(held: SnapshotHolder, status: str, act: str) -> None:
    finding = judge_snapshots([held], hidden=0)
    assert finding.status == status
    assert act in finding.text


@pytest.mark.slow
def test_notifications_that_get_lost_are_noticed(run: Run, dsn: str, tmp_path: Path) -> None:
    with deaf(dsn, tmp_path) as url:
        finding = examine(run, "-d", url)["notifications"]
    assert finding["status"] == "warning"
    assert "did not arrive within 2s" in finding["text"]


def test_what_a_role_may_not_see_is_said(run: Run, dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("do $$ begin create role cli_nobody; exception when duplicate_object then null; end $$")
    found = examine(run, "-d", make_conninfo(dsn, options="-c role=cli_nobody"))
    assert list(found) == CHECKS
    assert "may not" in found["schema"]["text"]
    assert found["schema"]["status"] == "problem"
    assert run("doctor", "-d", make_conninfo(dsn, options="-c role=cli_nobody")).code == 1
    assert "role 'cli_nobody' may not check this" in found["unknown tasks"]["text"]
    assert "connect as the schema's owner, 'postgres'" in found["unknown tasks"]["text"]
    assert "hidden from this role" in found["oldest snapshot"]["text"]
    assert found["notifications"]["status"] == "ok"


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (("mail",), 'the queue is paused: "stepwell resume mail"'),
        (("--task", "add"), 'the task is paused: "stepwell resume --task add"'),
        (("--all",), 'everything is paused: "stepwell resume --all"'),
    ],
)
def test_what_is_paused_is_said_with_how_to_resume_it(run: Run, jobs: Jobs, scope: tuple[str, ...], said: str) -> None:
    jobs.worker("add", queues_=("mail",))
    jobs.ready(queue="mail")
    run("pause", *scope)
    found = examine(run)
    assert said in found["oldest ready job"]["text"]
    assert found["pauses"]["status"] == "warning"


def test_schedules_that_nobody_fires_or_runs_are_named(run: Run, jobs: Jobs) -> None:
    make_schedule(jobs, "nightly", "add")
    found = examine(run)["schedules"]
    assert found["status"] == "warning"
    assert "no live worker runs the task of nightly of shop (task add)" in found["text"]
    jobs.worker("add")
    found = examine(run)["schedules"]
    assert found["status"] == "warning"
    assert "no live worker belongs to the app of nightly of shop" in found["text"]
    assert '"stepwell schedules delete nightly --owner shop"' in found["text"]
    jobs.connection.execute("update stepwell.worker set owner = 'shop'")
    assert examine(run)["schedules"]["status"] == "ok"
    jobs.connection.execute("update stepwell.schedule set next_tick_at = stepwell.now() - interval '2 minutes'")
    ran = run("doctor")
    assert ran.code == 1
    assert "not fired: nightly of shop, due at" in ran.out
