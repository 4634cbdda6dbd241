"""`stepwell top`: the screen, driven by Textual's own pilot on a real database, and one view that is printed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from cli.commands import Jobs, Run, Start
from cli.seat import sitting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.cells import cell_len
from textual.widgets import Input, Static

from stepwell.cli.top.dialogs import Page, Question
from stepwell.cli.top.screen import Rows
from stepwell.cli.top.tables import JOBS, QUEUES, cut, fitting, progress_text
from stepwell.cli.top.view import RecentViews, View
from stepwell.testing import Clock

HOSTILE = "[bold red]a[/]\x1b[31m/%b&"


async def test_queues_jobs_workers_failures_and_tasks_are_shown(dsn: str, jobs: Jobs) -> None:
    jobs.failed("boom", queue="default")
    jobs.running()
    jobs.ready(queue="mail")
    jobs.ready(queue="mail")
    async with sitting(dsn) as seat:
        await seat.sees(lambda: len(seat.rows) == 2)
        assert seat.rows[1][:2] == ["mail", "2"]
        assert "1 running" in seat.text("summary")
        assert "No live worker claims from queue mail" in seat.text("notice")
        await seat.go("2")
        assert seat.rows[0][0] == "add"
        await seat.press("s")
        await seat.sees(lambda: "No job is scheduled" in seat.text("empty"))
        await seat.press("l")
        await seat.sees(lambda: seat.titles[:1] == ["worker"])
        assert seat.rows[0][:2] == ["somewhere:7", "alive"]
        await seat.go("4")
        await seat.sees(lambda: seat.rows)
        assert seat.rows[0][:2] == ["add", "1"]
        await seat.press("enter")
        await seat.sees(lambda: isinstance(seat.screen.screen, Page))
        page = seat.screen.screen
        assert isinstance(page, Page)
        assert "ValueError: boom" in page.text.plain
        await seat.press("escape")
        await seat.go("5")
        await seat.sees(lambda: [row[0] for row in seat.rows] == ["add"])


@pytest.mark.slow
async def test_an_empty_database_is_said_to_be_empty(dsn: str) -> None:
    async with sitting(dsn) as seat:
        await seat.sees(lambda: "No queue is in use" in seat.text("empty"))
        for tab, said in (("2", "No job is running"), ("3", "No worker"), ("4", "No failure"), ("5", "No task")):
            await seat.press(tab)
            await seat.sees(lambda said=said: said in seat.text("empty"))
        await seat.press("R", "C", "P", "S", "enter")
        assert not isinstance(seat.screen.screen, Question | Page)


@pytest.mark.slow
async def test_names_are_shown_as_they_are(dsn: str, jobs: Jobs) -> None:
    jobs.ready(HOSTILE, queue="[bold red]a[/]/%b&", args='{"x": "[red]y[/red]"}')
    jobs.failed(f"{HOSTILE} is closed")
    shown = "[bold red]a[/]\\x1b[31m/%b&"
    queue = "[bold red]a[/]/%b&"
    async with sitting(dsn) as seat:
        await seat.sees(lambda: [queue, "default"] == [row[0] for row in seat.rows])
        await seat.press("P")
        assert queue in await seat.asked()
        assert queue in str(seat.screen.screen.query(Static).first().render())
        await seat.press("y")
        await seat.sees(lambda: seat.rows[0][1] == "paused")
        await seat.go("4")
        await seat.sees(lambda: seat.rows and shown in seat.rows[0][-1])
        await seat.go("2")
        await seat.press("s", "s")
        await seat.sees(lambda: seat.rows and seat.rows[0][0] == shown)
        await seat.press("enter")
        await seat.sees(lambda: isinstance(seat.screen.screen, Page))
        assert "[red]y[/red]" in str(seat.screen.screen.query(Static).first().render())
        await seat.press("escape", "slash", *"[bold", "enter")
        await seat.sees(lambda: "Only rows with the text '[bold'" in seat.text("empty"))


@pytest.mark.slow
async def test_the_row_that_is_chosen_stays_chosen_and_a_filter_stays(dsn: str, jobs: Jobs) -> None:
    for name in ("b", "d"):
        jobs.ready(queue=name)
    async with sitting(dsn) as seat:
        await seat.sees(lambda: len(seat.rows) == 2)
        await seat.press("j")
        jobs.ready(queue="a")
        await seat.sees(lambda: len(seat.rows) == 3)
        assert seat.screen.row is not None
        assert seat.screen.row["name"] == "d"
        await seat.press("slash", "B")
        await seat.sees(lambda: [row[0] for row in seat.rows] == ["b"])
        await seat.press("enter", "k")
        assert seat.screen.focused is seat.screen.query_one(Rows)
        await seat.press("escape")
        await seat.sees(lambda: len(seat.rows) == 3)
        assert seat.screen.query_one("#filter", Input).value == ""


@pytest.mark.slow
async def test_the_database_may_go_away_and_come_back(dsn: str, jobs: Jobs) -> None:
    jobs.ready(queue="mail")
    name = conninfo_to_dict(dsn)["dbname"]
    async with sitting(dsn) as seat:
        await seat.sees(lambda: seat.rows)
        with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as admin:
            admin.execute(f'alter database "{name}" allow_connections false')  # pyright: ignore[reportArgumentType, reportCallIssue]
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> %s",
                (name, jobs.connection.info.backend_pid),
            )
            await seat.sees(lambda: "The database does not answer" in seat.text("notice"))
            assert [row[0] for row in seat.rows] == ["mail"]
            await seat.press("P")
            await seat.asked()
            await seat.press("y")
            admin.execute(f'alter database "{name}" allow_connections true')  # pyright: ignore[reportArgumentType, reportCallIssue]
        await seat.sees(lambda: "does not answer" not in seat.text("notice"))


@pytest.mark.slow
async def test_a_narrow_terminal_has_fewer_columns(dsn: str, jobs: Jobs) -> None:
    jobs.ready(queue="a-queue-with-quite-a-long-name")
    async with sitting(dsn, size=(44, 12)) as seat:
        await seat.sees(lambda: seat.rows)
        assert seat.titles == ["queue", "ready", "running"]


async def test_wide_characters_leave_room_for_the_numbers(dsn: str, jobs: Jobs) -> None:
    jobs.ready(queue="邮" * 30)
    async with sitting(dsn, size=(60, 12)) as seat:
        await seat.sees(lambda: seat.rows)
        assert seat.titles == ["queue", "ready", "running"]
        assert seat.screen.query_one(Rows).virtual_size.width <= 60
        assert seat.rows[0][0].startswith("邮" * 15)
        assert seat.rows[0][0].endswith("…")
        assert cell_len(seat.rows[0][0]) <= 60 - 2 * 3 - len("ready" + "running")


@pytest.mark.parametrize(("widest", "shown"), [(6, "ab邮邮"), (5, "ab邮…"), (4, "ab …"), (3, "ab…")])
def test_a_text_is_cut_by_the_cells_that_it_takes(widest: int, shown: str) -> None:
    assert cut("ab邮邮", widest) == shown


def test_columns_that_may_be_spared_go_first_if_the_terminal_is_narrow() -> None:
    row = ["mail", "paused", "1", "2", "3", "4", "5", "6 s", "7", "8", "9"]
    assert list(fitting(QUEUES, [row], 200)) == list(range(11))
    assert [QUEUES[place].title for place in fitting(QUEUES, [row], 50)] == [
        "queue", "state", "ready", "running", "oldest", "failed/h",
    ]  # fmt: skip
    assert [QUEUES[place].title for place in fitting(QUEUES, [row], 5)] == ["queue", "ready", "running"]


def test_a_column_is_as_wide_as_its_title_and_others_are_narrowed_instead() -> None:
    row = ["a_task_with_a_name", "", "", "in 12 minutes", "", "", "", ""]
    widths = {JOBS[place].title: widest for place, widest in fitting(JOBS, [row], 26).items()}
    assert widths == {"task": 10, "due or ended": 12}
    assert [*fitting(JOBS, [row], 5).values()] == [8, 12]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ('{"done": 1, "total": 4, "message": "page 1"}', "██░░░░░░  25% page 1"),
        ('{"done": 12345}', "12,345 done"),
        ('{"done": 9, "total": 0}', "9 done"),
        ('{"done": -1, "total": 1e400}', "░░░░░░░░   0%"),
        (f'{{"done": 1{"0" * 400}, "total": 3}}', "much is done"),
        ("[1]", "[1]"),
        (None, ""),
    ],
)
def test_progress_is_a_short_bar(stored: str | None, shown: str) -> None:
    assert progress_text(stored) == shown


def test_one_view_is_printed(run: Run, jobs: Jobs) -> None:
    jobs.running()
    jobs.ready(HOSTILE, queue="mail")
    jobs.failed("boom [red]x[/red]")
    ran = run("top", "--once")
    assert (ran.code, ran.err) == (0, "")
    assert "1 running   1 ready   0 succeeded   1 failed" in ran.out
    for text in ("QUEUES", "mail", "RUNNING JOBS", "somewhere:7", "boom [red]x[/red]", "[bold red]a[/]\\x1b[31m/%b&"):
        assert text in ran.out


async def test_the_mean_run_counts_every_run_that_took_time(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "select stepwell.add_stats('{nap}', '{default}', '{1}', '{0}', '{0}', '{0}', '{40.0}', _suspended => '{3}')"
    )
    conn.commit()
    async with sitting(dsn) as seat:
        await seat.go("5")
        await seat.sees(lambda: seat.rows)
        assert dict(zip(seat.titles, seat.rows[0], strict=True))["mean run"] == "10 s"


async def test_jobs_that_never_ran_have_no_mean_run(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select stepwell.add_stats('{nap}', '{default}', '{0}', '{2}', '{0}', '{0}', '{0}')")
    conn.commit()
    async with sitting(dsn) as seat:
        await seat.go("5")
        await seat.sees(lambda: seat.rows)
        assert "mean run" not in seat.titles


def noticed(run: Run) -> list[str]:
    return run("top", "--once", "--json").json["notices"]


def test_what_needs_a_person_is_said_as_on_the_dashboard(run: Run, jobs: Jobs) -> None:
    jobs.worker("add")
    assert noticed(run) == []
    jobs.ready(queue="mail")
    jobs.ready()
    jobs.connection.execute("select stepwell.pause('mail')")
    jobs.connection.execute("update stepwell.job set run_at = run_at - interval '10 minutes'")
    jobs.connection.execute("select stepwell.add_stats('{add}', '{default}', '{15}', '{15}', '{0}', '{0}', '{1.0}')")
    said = noticed(run)
    assert said[0] == "Queue mail is paused, and jobs are ready in it."
    assert said[1].startswith("The oldest ready job, in queue default, has waited for 10m")
    assert said[2:] == ["50% of the runs of the last hour failed."]
    printed = run("top", "--once").out
    assert [line for line in said if line not in printed] == []


async def test_few_notices_stand_above_the_tables_and_problems_come_first(dsn: str, jobs: Jobs) -> None:
    for n in range(5):
        jobs.ready(queue=f"queue{n}")
        jobs.connection.execute("select stepwell.pause(%s)", (f"queue{n}",))
    async with sitting(dsn) as seat:
        await seat.sees(lambda: seat.text("notice"))
        lines = seat.text("notice").splitlines()
        assert lines[0] == "Jobs are ready, and no worker is alive."
        assert lines[3:] == ["And 3 more."]


async def test_a_notice_takes_one_line(dsn: str, jobs: Jobs) -> None:
    jobs.worker("add")
    for n in range(5):
        jobs.ready(queue=f"{n}" + "long" * 40)
        jobs.connection.execute("select stepwell.pause(%s)", (f"{n}" + "long" * 40,))
    async with sitting(dsn, size=(60, 30)) as seat:
        await seat.sees(lambda: seat.text("notice"))
        lines = seat.text("notice").splitlines()
        assert [cell_len(line) for line in lines[:3]] == [58] * 3
        assert (lines[0][:15], lines[0][-1], lines[3][:4]) == ("Queue 0longlong", "…", "And ")
        assert seat.screen.query_one("#notice").size.height == 4


async def test_a_clock_that_is_set_back_keeps_no_old_views(dsn: str, jobs: Jobs) -> None:
    async with sitting(dsn) as seat, Clock(seat.screen.jobs_app) as clock:
        recent = seat.screen._recent  # pyright: ignore[reportPrivateUsage]
        await seat.sees(lambda: len(recent) > 3)
        before = seat.screen.view
        assert before is not None
        await clock.set(before.now - timedelta(hours=1))
        await seat.sees(lambda: seat.screen.view is not None and seat.screen.view.now < before.now)
        assert seat.screen.view is not None
        assert seat.screen.view.before is None or seat.screen.view.before.now < before.now


def test_a_clock_that_stands_still_keeps_the_views_of_half_a_minute() -> None:
    recent, now = RecentViews(), datetime.now(UTC)
    for second in range(100):
        recent.add(View(now, read_only=False, overview={}), float(second))
    assert len(recent) == 31


def test_one_view_of_an_empty_database_is_printed(run: Run) -> None:
    ran = run("top", "--once")
    assert ran.code == 0
    assert "No queue is in use" in ran.out


def test_one_view_as_json_hides_what_is_to_be_hidden(run: Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_REDACT", "password")
    job_id = jobs.running(args='{"password": "xyz"}')
    view = run("top", "--once", "--json").json
    assert [(job["id"], job["args"]) for job in view["running"]] == [(job_id, {"password": "[redacted]"})]
    assert view["states"]["running"] == 1
    assert {"queues", "workers", "failures", "tasks", "runs_per_second"} <= set(view)


def test_json_needs_neither_textual_nor_the_dashboards_parts(dsn: str) -> None:
    program = (
        "import sys\n"
        "for name in ('textual', 'starlette', 'jinja2', 'uvicorn'): sys.modules[name] = None\n"
        f"sys.argv = ['stepwell', '-d', {dsn!r}, 'top', '--once', '--json']\n"
        "from stepwell.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert '"runs_per_second"' in ran.stdout


def test_without_the_extra_the_command_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    ran = run("top")
    assert ran.code == 1
    assert "pip install 'stepwell[top]'" in ran.err


def test_wrong_options_and_no_terminal_are_named(run: Run) -> None:
    for options, said in ((("--json",), "--once"), (("--interval", "10ms"), "--interval"), ((), "no terminal")):
        ran = run("top", *options)
        assert ran.code == 2
        assert said in ran.err


@pytest.mark.slow
def test_the_screen_opens_in_a_real_terminal_and_q_ends_it(start: Start, jobs: Jobs) -> None:
    jobs.ready(queue="a-queue")
    person, terminal = pty.openpty()
    process = start("top", fresh=True, stdin=terminal, stdout=terminal, stderr=terminal, env=_terminal_of(jobs))
    os.close(terminal)
    said = b""
    while b"a-queue" not in said:
        said += os.read(person, 65536)
    os.write(person, b"q")
    with suppress(OSError):  # the terminal is closed when the process has ended
        while os.read(person, 65536):
            pass
    assert process.wait(20) == 0
    os.close(person)


def _terminal_of(jobs: Jobs) -> dict[str, Any]:
    return {**os.environ, "STEPWELL_DATABASE_URL": jobs.connection.info.dsn, "TERM": "xterm", "NO_COLOR": "1"}
