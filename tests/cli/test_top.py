"""`stepwell top`: the screen, driven by Textual's own pilot on a real database, and one view that is printed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest
from cli.commands import Jobs, Run, Start
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from textual.pilot import Pilot
from textual.widgets import Input, Static
from waiting import auntil

from stepwell import App
from stepwell.cli.database import person
from stepwell.cli.top.dialogs import Page, Question
from stepwell.cli.top.screen import Rows, Top
from stepwell.cli.top.tables import QUEUES, fitting, progress_text

HOSTILE = "[bold red]a[/]\x1b[31m/%b&"


class Seat:
    """A person in front of the screen."""

    def __init__(self, screen: Top, pilot: Pilot[None]) -> None:
        self.screen = screen
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def sees(self, holds: Callable[[], object]) -> None:
        """Wait for something, reading again meanwhile."""

        async def now() -> bool:
            await self.pilot.pause()
            return bool(holds())

        await auntil(now)

    @property
    def rows(self) -> list[list[str]]:
        table = self.screen.query_one(Rows)
        return [[cell.plain for cell in table.get_row_at(row)] for row in range(table.row_count)]

    @property
    def titles(self) -> list[str]:
        return [str(column.label) for column in self.screen.query_one(Rows).ordered_columns]

    def text(self, name: str) -> str:
        widget = self.screen.query_one(f"#{name}", Static)
        return str(widget.render()) if widget.display else ""

    async def go(self, tab: str) -> None:
        await self.press(tab)
        name = ("queues", "jobs", "workers", "failures", "tasks")[int(tab) - 1]
        await self.sees(lambda: self.screen.view is not None and name in self.screen.view.rows and self.titles)

    async def asked(self) -> str:
        await self.sees(lambda: isinstance(self.screen.screen, Question))
        question = self.screen.screen
        assert isinstance(question, Question)
        return question.question


@asynccontextmanager
async def sitting(dsn: str, *, read_only: bool = False, size: tuple[int, int] = (120, 30)) -> AsyncGenerator[Seat]:
    async with App(dsn, call_timeout="2s") as app:
        screen = Top(app, "shop", interval=0.2, read_only=read_only)
        async with screen.run_test(size=size) as pilot:
            seat = Seat(screen, pilot)
            await seat.sees(lambda: screen.view is not None or screen.away is not None)
            yield seat


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
async def test_an_act_asks_and_only_y_is_a_yes(dsn: str, jobs: Jobs) -> None:
    first, second = jobs.ready("add"), jobs.ready("add")
    async with sitting(dsn) as seat:
        await seat.go("2")
        await seat.press("s", "s")
        await seat.sees(lambda: len(seat.rows) == 2)
        await seat.press("j", "C")
        assert second in await seat.asked()
        await seat.press("enter")
        assert jobs.state(second) == "ready"
        await seat.press("C")
        await seat.asked()
        await seat.press("y")
        await seat.sees(lambda: len(seat.rows) == 1)
    assert (jobs.state(first), jobs.state(second)) == ("ready", "cancelled")


@pytest.mark.slow
async def test_the_failed_jobs_of_a_group_are_retried_by_a_bulk_operation(dsn: str, jobs: Jobs, run: Run) -> None:
    other = jobs.failed("boom", frame="shop.mail:read")
    failed = [jobs.failed("boom", frame="shop.mail:send") for _ in range(3)]
    async with sitting(dsn) as seat:
        await seat.go("4")
        await seat.sees(lambda: [row[5] for row in seat.rows] == ["shop.mail:send", "shop.mail:read"])
        await seat.press("j")
        await seat.sees(lambda: seat.screen.row is not None and seat.screen.row["frame"] == "shop.mail:read")
        jobs.failed("boom", task="later", frame="shop.mail:send")
        await seat.sees(lambda: len(seat.rows) == 3)
        assert seat.screen.row is not None
        assert seat.screen.row["frame"] == "shop.mail:read", "it stays chosen"
        await seat.press("k", "R")
        assert "whose last attempt failed with ValueError in shop.mail:send?" in await seat.asked()
        await seat.press("y")
        await seat.sees(lambda: seat.screen._notifications)  # pyright: ignore[reportPrivateUsage]
        [said] = [each.message for each in seat.screen._notifications]  # pyright: ignore[reportPrivateUsage]
    [operation] = run("bulk", "--json").json
    assert said == f"bulk operation {operation['id']} has started: the workers work it off"
    assert operation["asked_by"] == person()
    assert run("bulk", "continue", operation["id"]).out == "done: 3 jobs changed, 0 skipped, 0 failed\n"
    assert ({jobs.state(job) for job in failed}, jobs.state(other)) == ({"ready"}, "failed")


@pytest.mark.slow
async def test_workers_and_everything_are_paused_resumed_and_stopped(dsn: str, jobs: Jobs) -> None:
    jobs.worker("add")
    jobs.ready()
    async with sitting(dsn) as seat:
        await seat.go("3")
        await seat.sees(lambda: seat.rows)
        for key, state in (("P", "paused"), ("P", "alive"), ("S", "stopping")):
            await seat.press(key)
            await seat.asked()
            await seat.press("y")
            await seat.sees(lambda state=state: seat.rows and seat.rows[0][1] == state)
        await seat.press("E")
        assert await seat.asked() == "Pause everything? Running jobs go on."
        await seat.press("y")
        await seat.sees(lambda: "Everything is paused" in seat.text("notice"))


async def test_read_only_offers_nothing_that_changes(dsn: str, jobs: Jobs) -> None:
    jobs.ready()
    async with sitting(dsn, read_only=True) as seat:
        await seat.sees(lambda: seat.rows)
        assert "read-only" in seat.text("title")
        await seat.press("P", "E")
        assert not isinstance(seat.screen.screen, Question)
        await seat.press("question_mark")
        await seat.sees(lambda: isinstance(seat.screen.screen, Page))
        page = seat.screen.screen
        assert isinstance(page, Page)
        assert "for looking only" in page.text.plain


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


def test_columns_that_may_be_spared_go_first_if_the_terminal_is_narrow() -> None:
    row = ["mail", "paused", "1", "2", "3", "4", "5", "6 s", "7", "8", "9"]
    assert fitting(QUEUES, [row], 200) == list(range(11))
    assert [QUEUES[place].title for place in fitting(QUEUES, [row], 50)] == [
        "queue", "state", "ready", "running", "oldest", "failed/h",
    ]  # fmt: skip
    assert [QUEUES[place].title for place in fitting(QUEUES, [row], 5)] == ["queue", "ready", "running"]


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
