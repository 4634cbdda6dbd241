"""`stepwell prune`."""

from __future__ import annotations

import inspect

import psycopg
import pytest
from cli.commands import Jobs, Run
from cli.test_progress import Terminal

from stepwell.cli import progress
from stepwell.cli import prune as command
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries import upkeep
from stepwell.values.log_line import LogLine


def test_what_has_expired_is_deleted_and_counted(run: Run, jobs: Jobs) -> None:
    kept, expired = jobs.succeeded(), jobs.succeeded()
    db = jobs.connection
    fetch(db, queries.events.emit("paid", None, None, 60))
    db.execute("update stepwell.event set expires_at = now() - interval '1 day'")
    db.execute("insert into stepwell.stat (minute, task, queue) select now() - interval '30 days', 'add', 'q' || n "
               "from generate_series(1, 5100) n")  # fmt: skip
    db.execute("update stepwell.history set expires_at = now() - interval '40 days' where id = %s::uuid", (expired,))
    ran = run("prune")
    assert (ran.code, ran.err) == (0, "")
    assert "5,100 counters" in ran.out
    assert "1 events" in ran.out
    assert jobs.state(kept) == "succeeded"
    row = db.execute("select count(*) from stepwell.history").fetchone()
    assert row == (1,)
    assert run("prune").out == "nothing has expired\n"


def test_logs_and_counters_are_counted_by_the_rows_that_are_deleted(run: Run, jobs: Jobs) -> None:
    live, kept, expired = jobs.ready("other"), jobs.failed(), jobs.failed()
    lines = [LogLine(job, 1, 0.0, 20, "shop", "a line") for job in (live, kept, expired, expired)]
    db = jobs.connection
    fetch(db, queries.logs.write_logs(lines, {}))
    db.execute("update stepwell.run_log_head set look_at = now() - interval '1 minute'")
    db.execute("update stepwell.history set expires_at = now() - interval '1 hour' where id = %s::uuid", (expired,))
    db.execute("insert into stepwell.stat (minute, task, queue) values (now() - interval '30 days', 'add', 'q')")
    db.execute(
        "insert into stepwell.stat_sum"
        " values (1, now() - interval '30 days', '', '', 0, 0, 0, 0, 0, 0, '{}', '{}'),"
        " (5, now() - interval '30 days', '', '', 0, 0, 0, 0, 0, 0, '{}', '{}')"
    )
    assert run("prune").out.endswith(", 3 counters, 2 lines of logs\n")
    left = db.execute("select count(*), count(distinct job_id) from stepwell.run_log").fetchone()
    assert left == (2, 2)


def test_expired_partitions_are_dropped(run: Run, jobs: Jobs) -> None:
    jobs.connection.execute(
        "create table stepwell.history_20200101 partition of stepwell.history"
        " for values from ('2020-01-01') to ('2020-01-02')"
    )
    assert run("prune").out == "deleted 1 partition of finished jobs and failures\n"


def test_a_terminal_shows_how_far_it_is(run: Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.connection.execute(
        "insert into stepwell.stat (minute, task, queue) select now() - interval '30 days', 'add', 'q' || n "
        "from generate_series(1, 5100) n"
    )
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert "5,100 counters" in run("prune").out
    assert "deleting " in terminal.getvalue()


def test_it_prunes_all_that_workers_prune() -> None:
    ours = inspect.getsource(command)
    for name, _ in inspect.getmembers(upkeep, inspect.isfunction):
        if name.startswith("prune") and name != "prune_logs":  # prune_logs_counted is the same
            assert f"queries.upkeep.{name}" in ours


def test_a_viewer_may_not_prune(run: Run, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("do $$ begin create role cli_pruner; exception when duplicate_object then null; end $$")
    assert run("grant", "cli_pruner", "--as", "viewer").code == 0
    ran = run("prune", "-d", f"{dsn} options='-c role=cli_pruner'")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
