"""STEPWELL_REDACT hides named fields from everybody who looks at jobs, and nothing else."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from cli.commands import Jobs, Run, Start
from cli.test_web import free_port
from waiting import until

from stepwell.cli.top.tables import progress_text
from stepwell.values.redaction import Redaction

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def hide_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_REDACT", "password")


def nested(depth: int) -> str:
    return '{"a": ' * depth + f'{{"password": "{SECRET}"}}' + "}" * depth


@pytest.mark.parametrize(
    "given",
    [
        {"argument": "password", "value": SECRET},
        {"argument": "login.password", "value": SECRET},
        {"value": SECRET},
        {"metadata": {"password": SECRET}},
    ],
)
def test_what_a_bulk_operation_was_filtered_by_is_hidden(run: Run, jobs: Jobs, given: dict[str, Any]) -> None:
    row = jobs.connection.execute("select stepwell.start_bulk('retry', %s)::text", (json.dumps(given),)).fetchone()
    assert row is not None
    for argv in (("bulk",), ("bulk", "show", row[0])):
        for options in ((), ("--json",)):
            ran = run(*argv, *options)
            assert (ran.code, SECRET in ran.out, "[redacted]" in ran.out) == (0, False, True)


def test_an_operation_filtered_by_something_else_is_shown(run: Run, jobs: Jobs) -> None:
    jobs.connection.execute("""select stepwell.start_bulk('retry', '{"argument": "user", "value": "ada"}')""")
    assert run("bulk", "--json").json[0]["filter"] == {"argument": "user", "value": "ada", "states": ["failed"]}


@pytest.mark.parametrize("depth", [1, 500, 900, 970])
def test_a_job_whose_args_are_nested_deep_hides_no_others(run: Run, jobs: Jobs, depth: int) -> None:
    deep = jobs.running(args=nested(depth))
    other = jobs.running(args=f'{{"password": "{SECRET}", "n": 1}}')
    for argv in (("jobs", "list"), ("top", "--once")):
        ran = run(*argv, "--json")
        assert (ran.code, ran.err, SECRET in ran.out) == (0, "", False)
        found = ran.json["running"] if argv[0] == "top" else ran.json
        assert [job["args"] for job in found if job["id"] == other] == [{"password": "[redacted]", "n": 1}]
        assert "[redacted]" not in found
    assert SECRET not in run("jobs", "show", other).out
    assert run("jobs", "show", deep).code == 0


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (f'[{{"password": "{SECRET}"}}]', '[{"password": "[redacted]"}]'),
        (f'{{"done": 1, "total": 2, "password": "{SECRET}"}}', "████░░░░  50%"),
        (f'{{"password": "{SECRET}", "n": 1{"0" * 5000}}}', "(cannot be shown: "),
    ],
)
def test_progress_that_stepwell_has_not_written_is_hidden_too(stored: str, shown: str) -> None:
    assert progress_text(stored).startswith(shown)
    assert SECRET not in progress_text(stored)


def test_the_dashboard_hides_these_fields_besides_those_of_its_option(start: Start, jobs: Jobs) -> None:
    job = jobs.ready(args=f'{{"password": "{SECRET}", "card": "{SECRET}", "x": 1}}')
    port = free_port()
    process = start("web", "shop:app", "--port", str(port), "--redact", "card", "--log-level", "warning")

    def page() -> Any:
        assert process.poll() is None, process.communicate()
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/jobs/{job}", headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(asked) as answer:
                return json.load(answer)
        except OSError:
            return None

    assert until(page)["args"] == {"password": "[redacted]", "card": "[redacted]", "x": 1}


def test_a_value_of_any_depth_is_searched() -> None:
    deep: Any = {"password": SECRET}
    for _ in range(100_000):
        deep = [deep]
    redaction = Redaction(["Password"])
    assert redaction.touches(deep)
    found: Any = redaction.apply(deep)
    for _ in range(100_000):
        found = found[0]
    assert found == {"password": "[redacted]"}
    assert not Redaction(["token"]).touches(deep)
