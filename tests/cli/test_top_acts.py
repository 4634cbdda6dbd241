"""What a person changes in `stepwell top`: each act asks first, and is recorded."""

from __future__ import annotations

import contextlib
import os
import pty

import psycopg
import pytest
from cli.commands import Jobs, Run, Start
from cli.seat import sitting
from psycopg.conninfo import make_conninfo
from textual.widgets import Static

from stepwell.cli.database import person
from stepwell.cli.top.dialogs import Page, Question
from stepwell.postgres.acting import acting


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
        assert await seat.asked() == (
            "Retry 3 failed jobs of add whose last attempt failed with ValueError in shop.mail:send?"
        )
        newer = jobs.failed("boom", frame="shop.mail:send")
        await seat.press("y")
        await seat.sees(lambda: seat.screen._notifications)  # pyright: ignore[reportPrivateUsage]
        [said] = [each.message for each in seat.screen._notifications]  # pyright: ignore[reportPrivateUsage]
    [operation] = run("bulk", "--json").json
    assert said == f"bulk operation {operation['id']} has started: the workers work it off"
    assert (operation["asked_by"], operation["expected"]) == (person(), 3)
    assert run("bulk", "continue", operation["id"]).out == "done: 3 jobs changed, 0 skipped, 0 failed\n"
    assert ({jobs.state(job) for job in failed}, jobs.state(other)) == ({"ready"}, "failed")
    assert jobs.state(newer) == "failed", "it was not confirmed"


async def test_a_group_without_failed_jobs_has_none_to_retry(dsn: str, jobs: Jobs) -> None:
    job = jobs.failed("boom")
    async with sitting(dsn) as seat:
        await seat.go("4")
        await seat.sees(lambda: seat.rows)
        jobs.connection.execute("select stepwell.retry(array[%s]::uuid[])", (job,))
        await seat.press("R")
        await seat.sees(lambda: seat.screen._notifications)  # pyright: ignore[reportPrivateUsage]
        [said] = [each.message for each in seat.screen._notifications]  # pyright: ignore[reportPrivateUsage]
        assert said == "there are no failed jobs of add whose last attempt failed with ValueError"
        assert not isinstance(seat.screen.screen, Question)


@pytest.mark.parametrize(
    ("keys", "open_now"), [(("E",), "Pause everything"), (("slash", "a"), ""), (("j",), ""), (("1",), "")]
)
async def test_a_question_that_took_long_does_not_open_when_the_person_has_gone_on(
    dsn: str, jobs: Jobs, keys: tuple[str, ...], open_now: str
) -> None:
    jobs.failed("boom", task="add")
    jobs.failed("boom", task="later")
    async with sitting(dsn) as seat:
        await seat.go("4")
        await seat.sees(lambda: len(seat.rows) == 2)
        with psycopg.connect(dsn) as other:
            # The count waits for this lock.
            other.execute("lock table stepwell.history")
            await seat.press("R")
            await seat.sees(lambda: "counting" in seat.text("title"))
            await seat.press(*keys)
        await seat.sees(lambda: "counting" not in str(seat.screen.screen_stack[0].query_one("#title", Static).render()))
        questions = [screen.question for screen in seat.screen.screen_stack if isinstance(screen, Question)]
        assert [text.partition("?")[0] for text in questions] == ([open_now] if open_now else [])


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


async def test_a_database_that_takes_no_writes_is_for_looking(dsn: str, jobs: Jobs) -> None:
    jobs.failed("boom")
    jobs.ready(queue="mail")
    theirs = make_conninfo(dsn, options="-c default_transaction_read_only=on", target_session_attrs="any")
    async with sitting(theirs) as seat:
        await seat.sees(lambda: seat.rows)
        assert "read-only" in seat.text("title")
        for tab in "12345":
            await seat.go(tab)
            await seat.press("R", "C", "N", "P", "S", "E")
            assert not isinstance(seat.screen.screen, Question)
        await seat.press("question_mark")
        await seat.sees(lambda: isinstance(seat.screen.screen, Page))


@pytest.mark.slow
async def test_acts_are_recorded_with_who_made_them(dsn: str, jobs: Jobs, run: Run) -> None:
    jobs.worker("add")
    failed, ready = jobs.failed("boom"), jobs.ready(queue="mail")
    with acting("ada@desk", "cli"):
        async with sitting(dsn) as seat:
            for tab, keys, holds in (
                ("1", "P", lambda: "paused" in [row[1] for row in seat.rows]),
                ("1", "P", lambda: "paused" not in [row[1] for row in seat.rows]),
                ("4", "R", lambda: jobs.connection.execute("select from stepwell.bulk").fetchall()),
                ("1", "E", lambda: "Everything is paused" in seat.text("notice")),
            ):
                await seat.go(tab)
                await seat.sees(lambda: seat.rows)
                await seat.press(keys)
                await seat.asked()
                await seat.press("y")
                await seat.sees(holds)
            await seat.go("2")
            await seat.press("s", "s")
            await seat.sees(lambda: seat.screen.row is not None and seat.screen.row["id"] == ready)
            await seat.press("C")
            await seat.asked()
            await seat.press("y")
            await seat.sees(lambda: jobs.state(ready) == "cancelled")
    acts = run("audit", "--json").json
    assert {(each["who"], each["via"]) for each in acts} == {("ada@desk", "cli")}
    made = [(each["act"], each["target"]) for each in reversed(acts)]
    assert made[:2] == [("pause", "queue default"), ("resume", "queue default")]
    assert made[2][0] == "retry"
    assert made[3:] == [("pause", "everything"), ("cancel", f"job {ready}")]
    assert jobs.state(failed) == "failed"


@pytest.mark.slow
def test_an_act_in_a_real_terminal_is_recorded_for_the_account(start: Start, jobs: Jobs, run: Run) -> None:
    jobs.ready(queue="a-queue")
    keyboard, terminal = pty.openpty()
    there = {**os.environ, "STEPWELL_DATABASE_URL": jobs.connection.info.dsn, "TERM": "xterm", "NO_COLOR": "1"}
    process = start("top", fresh=True, stdin=terminal, stdout=terminal, stderr=terminal, env=there)
    os.close(terminal)
    said = b""
    for text, key in ((b"a-queue", b"P"), (b"Pause queue", b"y"), (b"paused", b"q")):
        while text not in said:
            said += os.read(keyboard, 65536)
        os.write(keyboard, key)
    with contextlib.suppress(OSError):  # the terminal is closed when the process has ended
        while os.read(keyboard, 65536):
            pass
    assert process.wait(20) == 0
    os.close(keyboard)
    [act] = run("audit", "--json").json
    assert (act["who"], act["via"], act["act"], act["target"]) == (person(), "cli", "pause", "queue a-queue")
