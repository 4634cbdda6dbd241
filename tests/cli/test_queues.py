"""`stepwell queues`, `pause`, `resume` and `workers`."""

from __future__ import annotations

from cli.commands import Jobs, Run

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.claims import Position


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
    assert run("queues").out == "no queue holds live jobs, is paused or has settings\n"
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


def test_the_owner_of_an_unnamed_app_is_a_dash(run: Run, jobs: Jobs) -> None:
    jobs.worker("add", owner="shop.jobs", named=False)
    jobs.worker("add", owner="billing", named=True)
    unnamed, named = (line.split() for line in run("workers").out.splitlines()[1:])
    assert "shop.jobs" not in unnamed
    assert "-" in unnamed
    assert "billing" in named


def test_workers_are_listed_with_the_tasks_of_the_jobs_they_hold(run: Run, jobs: Jobs) -> None:
    idle = jobs.worker("add")
    for task in ("add", "greet", "greet"):
        jobs.ready(task, "{}")
    busy = jobs.worker("add", "greet")
    fetch(jobs.connection, queries.claims.claim(busy, ["default"], [Position()], ["add", "greet"], 10))
    found = {worker["id"]: worker["holds"] for worker in run("workers", "--json").json}
    assert found == {idle: {}, busy: {"greet": 2, "add": 1}}
    lines = run("workers").out.splitlines()
    assert "greet 2, add 1" in next(line for line in lines if line.startswith(busy))


def test_of_what_a_worker_holds_no_more_than_a_thousand_jobs_are_counted(run: Run, jobs: Jobs) -> None:
    busy = jobs.worker("add")
    jobs.connection.execute("select stepwell.enqueue_many('{add}', array_fill('{}'::text, '{1001}'))")
    fetch(jobs.connection, queries.claims.claim(busy, ["default"], [Position()], ["add"], 1001))
    assert run("workers", "--json").json[0]["holds"] == {"add": 1000}
    assert "add 1000, ..." in run("workers").out


def test_the_limit_of_a_queue_is_set_and_removed(run: Run, jobs: Jobs) -> None:
    jobs.ready(queue="mail")
    ran = run("queues", "set", "mail", "--limit", "10", "--paused")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "at most 10 of queue mail run at once\nqueue mail is paused\n"
    [mail] = run("queues", "--json").json
    assert (mail["limit"], mail["paused_at"] is not None) == (10, True)
    assert run("queues", "set", "mail", "--no-paused").out == "queue mail is resumed\n"
    assert run("queues").out.splitlines()[1].split()[:7] == ["mail", "1", "0", "0", "0", "0", "10"]
    ran = run("queues", "set", "mail", "--limit", "10", "--rate", "50/s", "--keep", "1d", "--paused")
    assert ran.out.splitlines() == [
        "at most 10 of queue mail run at once",
        "at most 50/s of queue mail start",
        "succeeded jobs of queue mail are kept: 1d",
        "queue mail is paused",
    ]
    [mail] = run("queues", "--json").json
    assert (mail["limit"], mail["rate"], mail["keep"], mail["paused_at"] is None) == (10, 50, 86400, False)
    run("queues", "set", "mail", "--no-paused")
    ran = run("queues", "set", "mail", "--rate", "50/s", "--burst", "9")
    assert ran.out == "at most 50/s of queue mail start, up to 9 at once\n"
    [mail] = run("queues", "--json").json
    assert (mail["limit"], mail["rate"], mail["burst"]) == (10, 50, 9)
    ran = run("queues", "set", "mail", "--rate", "50/s", "--smooth")
    assert ran.out == "at most 50/s of queue mail start, evenly spaced\n"
    assert run("queues", "--json").json[0]["burst"] == 1
    missing = run("queues", "unset", "mial")
    assert (missing.code, missing.err) == (
        1,
        "stepwell: queue 'mial' has no limit or rate or keep or keep-failed: did you mean 'mail'?\n",
    )
    assert run("queues", "unset", "mail").out == "queue mail has no limit or rate or keep or keep-failed\n"
    assert run("queues", "--json").json[0]["limit"] is None
    assert (
        "no live worker, schedule or recent job has the queue 'mall'"
        in run("queues", "set", "mall", "--limit", "1").err
    )
    assert run("queues", "set", "mail").code == 2
    assert "the limit of queue mail is -1: give 0 to 1000000" in run("queues", "set", "mail", "--limit", "-1").err
