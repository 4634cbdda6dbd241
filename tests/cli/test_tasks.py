"""`stepwell tasks`, and finding the app that MODULE:APP names."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from cli.commands import Run


def test_tasks_are_listed_without_a_database(run_without_database: Run) -> None:
    tasks = {task["name"]: task for task in run_without_database("tasks", "shop:app", "--json").json}
    assert list(tasks) == ["add", "greet", "hold", "shout", "stuck"]
    add, greet = tasks["add"], tasks["greet"]
    assert (add["kind"], add["queue"], add["arguments"], add["timeout"]) == (
        "async",
        "default",
        "x: int, y: int = 2",
        None,
    )
    assert (greet["kind"], greet["queue"], greet["priority"], greet["timeout"]) == ("thread", "mail", 5, 30.0)
    assert (greet["max_attempts"], greet["keep"]) == (1, "forever")
    lines = run_without_database("tasks", "shop:app").out.splitlines()
    assert lines[1].split()[:3] == ["add", "async", "default"]
    assert "20 attempts, exponential from 1s to 1h" in lines[1]
    assert "forever" in lines[2]


def test_steps_states_and_schedules_are_listed_without_a_database(run_without_database: Run) -> None:
    clean, ingest, subscription = run_without_database("tasks", "flows:app", "--json").json
    assert [task["flow"] for task in (clean, ingest, subscription)] == [None, "chain", "machine"]
    assert [(step["name"], step["begins"], step["queue"], step["timeout"], step["max_attempts"])
            for step in (*ingest["steps"], *subscription["steps"])] == [
        ("fetch", True, "web", None, 20),
        ("parse", False, "cpu", 3.0, 1),
        ("save", False, "web", None, 20),
        ("Trial", True, "default", None, 20),
        ("Active", False, "billing", 60.0, 20),
    ]  # fmt: skip
    assert [(step["priority"], step["process"], step["transaction"]) for step in ingest["steps"]] == [
        (2, False, False),
        (7, True, False),
        (2, False, True),
    ]
    nightly, often = clean["schedules"]
    assert (nightly["name"], nightly["cron"], nightly["tz"], nightly["every"]) == (
        "clean",
        "0 3 * * *",
        "Europe/Paris",
        None,
    )
    assert (nightly["overlap"], nightly["catchup"], nightly["args"], nightly["queue"]) == ("queue", 3, {"x": 1}, "late")
    assert (often["name"], often["every"], often["catchup"], often["queue"]) == ("often", 900.0, 0, "night")
    assert (often["metadata"], often["policy"]) == ({"by": "cron"}, {"timeout": 60.0, "keep": 3600.0})
    assert (nightly["metadata"], nightly["policy"], nightly["max_attempts"]) == (None, None, None)
    assert datetime.fromisoformat(nightly["next_run_at"]).astimezone(ZoneInfo("Europe/Paris")).hour == 3

    tasks, steps, schedules = run_without_database("tasks", "flows:app").out.split("\n\n")
    assert [line.split()[:2] for line in tasks.splitlines()[1:]] == [
        ["clean", "async"],
        ["ingest", "chain"],
        ["subscription", "machine"],
    ]
    assert steps.splitlines()[1].split()[:4] == ["ingest", "fetch", "begins", "web"]
    assert steps.splitlines()[2].split()[:5] == ["ingest", "parse", "cpu", "7", "process"]
    assert steps.splitlines()[3].split()[:5] == ["ingest", "save", "web", "2", "transaction"]
    assert steps.splitlines()[5].split()[:3] == ["subscription", "Active", "billing"]
    assert "0 3 * * * Europe/Paris" in schedules.splitlines()[1]
    assert "every 15m" in schedules.splitlines()[2]


def test_a_batch_task_shows_the_type_of_an_element_and_its_batches(run_without_database: Run) -> None:
    embed, one = run_without_database("tasks", "batches:app", "--json").json
    assert (embed["arguments"], embed["batch"], embed["batch_wait"]) == ("texts: str", 100, 0.25)
    assert (one["arguments"], one["batch"], one["batch_wait"]) == ("text: str", None, None)
    heads, *lines = run_without_database("tasks", "batches:app").out.splitlines()
    assert "batch" in heads
    assert "100 in 250ms" in lines[0]
    assert "batch" not in run_without_database("tasks", "shop:app").out.splitlines()[0]


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("shop", 2, "is not MODULE:APP"),
        ("shop:", 2, "is not MODULE:APP"),
        ("./shop.py:app", 2, "is not MODULE:APP"),
        ("shop.py:app", 1, "did you mean 'shop'?"),
        ("no_shop:app", 1, "there is no module 'no_shop' here"),
        ("broken.absent:app", 1, "there is no module 'broken.absent' here"),
        ("shop:absent", 1, "module 'shop' has no 'absent': did you mean shop:app?"),
        ("shop:not_an_app", 1, "is of type int, not an App: did you mean shop:app?"),
        ("broken:app", 1, "there is no App in it"),
        ("broken.leaves:app", 1, "ends the program when it is imported"),
    ],
)
def test_an_app_that_cannot_be_found_is_one_line(run_without_database: Run, path: str, code: int, said: str) -> None:
    for command in ("tasks", "worker"):
        ran = run_without_database(command, path)
        assert (ran.code, ran.out) == (code, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1


def test_an_error_in_the_users_module_shows_their_traceback_and_not_ours(run_without_database: Run) -> None:
    ran = run_without_database("tasks", "broken.raises:app")
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == "LookupError: 'no such [setting]'" or lines[-2] == "LookupError: no such [setting]"
    assert lines[-1].startswith("stepwell: module 'broken.raises' cannot be imported: LookupError")
    files = [line for line in lines if line.strip().startswith("File ")]
    assert len(files) == 2
    assert all("raises.py" in line for line in files)


def test_a_module_that_the_users_module_misses_is_their_error(run_without_database: Run) -> None:
    ran = run_without_database("tasks", "broken.imports:app")
    assert ran.code == 1
    assert "imports.py" in ran.err
    assert "No module named 'there_is_no_such_module'" in ran.err.splitlines()[-1]


def test_a_syntax_error_names_the_line(
    run_without_database: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_written.py").write_text("app = (\n")
    monkeypatch.chdir(tmp_path)
    ran = run_without_database("tasks", "half_written:app")
    assert ran.code == 1
    assert 'half_written.py", line 1' in ran.err
    assert ran.err.splitlines()[-1].startswith("stepwell: module 'half_written' cannot be imported: SyntaxError")
