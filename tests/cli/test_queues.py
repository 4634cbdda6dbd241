"""`stepwell queues`, `pause`, `resume` and `workers`."""

from __future__ import annotations

from cli.commands import Jobs, Run


def test_queues_are_counted_by_state(run: Run, jobs: Jobs) -> None:
    jobs.running()
    jobs.ready()
    jobs.ready("greet", "{}", queue="mail", delay=60)
    default, mail = run("queues", "--json").json
    assert (default["name"], default["ready"], default["running"]) == ("default", 1, 1)
    assert (mail["name"], mail["scheduled"], mail["paused_at"]) == ("mail", 1, None)
    lines = run("queues").out.splitlines()
    assert lines[1].split()[:6] == ["default", "1", "0", "1", "0", "0"]


def test_a_queue_is_paused_and_resumed(run: Run) -> None:
    assert run("queues").out == "no queue holds live jobs or is paused\n"
    assert run("pause", "mail").out.startswith("queue mail is paused")
    (mail,) = run("queues", "--json").json
    assert mail["name"] == "mail"
    assert mail["paused_at"].endswith("+00:00")
    assert run("resume", "mail").out == "queue mail is resumed\n"
    assert run("resume", "mail").out == "queue mail is not paused\n"
    assert all(queue["paused_at"] is None for queue in run("queues", "--json").json)


def test_workers_are_listed_with_what_they_run(run: Run, jobs: Jobs) -> None:
    assert run("workers").out == "no worker is registered\n"
    alive, dead = jobs.worker("add", "greet"), jobs.worker("add", queues_=("mail", "default"), lease=0)
    first, second = run("workers", "--json").json
    assert (first["id"], first["alive"], first["tasks"]) == (alive, True, ["add", "greet"])
    assert (second["id"], second["alive"], second["queues"]) == (dead, False, ["mail", "default"])
    lines = run("workers").out.splitlines()
    assert lines[1].split()[:2] == [alive, "alive"]
    assert lines[2].split()[:2] == [dead, "dead"]
    assert "0/5" in lines[1]
