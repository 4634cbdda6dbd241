"""`stepwell failures` and `stepwell audit`."""

from __future__ import annotations

import getpass
import socket
from uuid import uuid4

import psycopg
import pytest
from cli.commands import Jobs, Run

from stepwell.postgres.acting import acting

ME = f"{getpass.getuser()}@{socket.gethostname()}"


def test_failures_are_listed_and_set(run: Run, jobs: Jobs) -> None:
    assert run("failures").out == "no failure is open\n"
    assert run("failures", "--state", "all").out == "nothing has failed\n"
    job = jobs.failed()
    [listed] = run("failures", "--json").json
    failure = listed["id"]
    assert (listed["count"], listed["state"], listed["job_id"]) == (1, "open", str(job))
    assert failure in run("failures", "--sort", "count", "--task", listed["task"]).out
    assert run("failures", "resolve", failure).out == f"{failure} is resolved\n"
    assert run("failures", "resolve", failure).out == f"{failure} was resolved already\n"
    assert run("failures").out == "no failure is open\n"
    assert run("failures", "ignore", failure).out == f"{failure} is ignored\n"
    assert run("failures", "-s", "ignored", "--json").json[0]["id"] == failure
    assert run("failures", "reopen", failure).code == 0
    assert run("jobs", "list", "--failure", failure, "--json").json[0]["id"] == str(job)
    assert run("jobs", "retry", "--failure", failure, "--yes").out == "retried 1 job\n"


def test_wrong_words_are_refused(run: Run) -> None:
    nobody = str(uuid4())
    ran = run("failures", "resolve", nobody)
    assert (ran.code, ran.out) == (1, f"{nobody} is not known\n")
    assert "ID is 'x': give its id, as 'stepwell failures' shows it" in run("failures", "resolve", "x").err
    assert "--state is 'closed'" in run("failures", "--state", "closed").err
    assert "--sort is 'size'" in run("failures", "--sort", "size").err
    assert "--failure is 'x'" in run("jobs", "list", "--failure", "x").err


def test_what_a_person_does_is_recorded_with_account_and_machine(run: Run, jobs: Jobs) -> None:
    assert run("audit").out == "nobody has done anything yet\n"
    job = jobs.failed()
    run("pause", "mail")
    run("resume", "mail")
    run("limits", "set", "api", "--most", "5", "--rate", "100/m")
    run("queues", "set", "mail", "--limit", "3")
    run("jobs", "retry", "--newer-than", "1h", "--yes")
    run("jobs", "cancel", str(job))
    run("enqueue", "work")
    run("jobs", "list")
    found = run("audit", "--json").json
    assert {(act["who"], act["via"]) for act in found} == {(ME, "cli")}
    assert [(act["act"], act["target"], act["count"]) for act in reversed(found)][:5] == [
        ("pause", "queue mail", 1),
        ("resume", "queue mail", 1),
        ("set limit", "key api: 5", 1),
        ("set rate", "key api: 100 per 60 s", 1),
        ("set queue", "queue mail: limit=3", 1),
    ]
    assert [(act["act"], act["target"]) for act in found[:2]] == [
        ("enqueue", "task work"),
        ("cancel", f"job {job}"),
    ]
    assert (found[2]["act"], found[2]["count"]) == ("retry", 1)
    assert found[2]["target"].startswith("jobs with state=failed after=")
    ran = run("audit", "--act", "pause")
    assert "queue mail" in ran.out
    assert run("audit", "--who", "nobody").out == "no act matches\n"
    ran = run("audit", "-n", "2")
    more = ran.out.splitlines()[-1]
    assert more.startswith("there are more: add --before ")
    assert "set queue" not in ran.out
    assert "cancel" not in run("audit", "--before", more.rpartition(" ")[2]).out


def test_hostile_names_do_not_reach_the_terminal(run: Run, conn: psycopg.Connection[tuple[object, ...]]) -> None:
    conn.execute("select stepwell.record_act(e'a\\x1b[31m', 'cli', 'pause', %s, 1)", ["x" * 5000])
    out = run("audit").out
    assert "\x1b" not in out
    assert "\\x1b[31m" in out
    [act] = run("audit", "--json").json
    assert (len(act["target"]), act["target"][-3:]) == (1000, "...")


def test_an_account_without_a_name_has_a_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    with acting("not me", "python"):
        run("pause", "mail")
    [act] = run("audit", "--json").json
    assert act["who"].partition("@")[0].isdecimal()
