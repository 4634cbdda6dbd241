"""`stepwell worker` as a process: it runs jobs, and signals end it in order."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cli.commands import Jobs, Run, Start
from cli.process import Process

from stepwell.postgres.address import ENVIRONMENT

pytestmark = pytest.mark.crash


def test_it_runs_jobs_from_its_queues(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    done, other, loud = jobs.ready(), jobs.ready(queue="other"), jobs.ready("shout", "{}", queue="mail")
    worker = Process(start, tmp_path, "-q", "default", "-q", "mail", "-c", "2", "--log-level", "debug", fresh=True)
    worker.until(lambda: jobs.state(done) == "succeeded" and jobs.state(loud) == "failed")
    worker.signal()
    assert worker.end() == 0
    assert jobs.state(other) == "ready"
    assert "claims from default, mail in database" in worker.log
    assert f"add {done} succeeded" in worker.log
    assert "[bold]\\x1b[31mred[/]" in worker.log
    assert not any(line.startswith("2000-01-01") for line in worker.log.splitlines())
    assert "    Traceback" in worker.log  # what failed for good is shown whole, indented


def test_queues_have_slots_of_their_own_or_share_by_weight(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    done, other = jobs.ready(queue="mail"), jobs.ready(queue="x=y")
    worker = Process(start, tmp_path, "-q", "mail=2", "-q", "*=20", "--balance", "mail=3,x*=2")
    worker.until(lambda: jobs.state(done) == jobs.state(other) == "succeeded")
    worker.signal()
    assert worker.end() == 0
    assert "claims from mail (2), * (20) in database" in worker.log
    assert ", 22 at once" in worker.log


def test_it_says_that_the_code_names_another_database_than_the_environment(
    start: Start, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "made.py").write_text(
        f"from stepwell import App\n\napp = App({dsn!r})\n\n\n@app.task\ndef add() -> None: ...\n"
    )
    ended = start("worker", "made:app", cwd=tmp_path, env={**os.environ, ENVIRONMENT: "postgresql://nowhere.invalid/x"})
    assert ended.stdout is not None
    assert ended.stdout.readline() == (
        f"{ENVIRONMENT} is set but not used: 'made:app' names its database in the code; write App() to use the "
        "variable\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_waits_for_the_running_job(
    start: Start, jobs: Jobs, tmp_path: Path, number: signal.Signals
) -> None:
    gate = tmp_path / "gate"
    job = jobs.ready("hold", f'{{"until": "{gate}"}}')
    worker = Process(start, tmp_path)
    worker.until(lambda: jobs.state(job) == "running")
    worker.signal(number)
    worker.says(
        f"stopping: waiting up to 30s for 1 running job: hold {job}; a second Ctrl-C hands it back and ends the "
        "worker within seconds"
    )
    later = jobs.ready()
    gate.touch()
    assert worker.end() == 0
    assert (jobs.state(job), jobs.state(later)) == ("succeeded", "ready")


@pytest.mark.slow
def test_the_second_signal_hands_the_running_job_back(start: Start, jobs: Jobs, run: Run, tmp_path: Path) -> None:
    job = jobs.ready("hold", f'{{"until": "{tmp_path / "never"}"}}')
    worker = Process(start, tmp_path)
    worker.until(lambda: jobs.state(job) == "running")
    worker.signal()
    worker.says("stopping")
    worker.signal()
    assert worker.end() == 0
    shown = run("jobs", "show", job, "--json").json
    assert (shown["state"], shown["attempt"], shown["epoch"], shown["failures"]) == ("ready", 0, 1, [])
    assert run("workers", "--json").json == []


@pytest.mark.slow
def test_a_handler_that_will_not_stop_cannot_hold_the_process(
    start: Start, jobs: Jobs, run: Run, tmp_path: Path
) -> None:
    job = jobs.ready("stuck", "{}")
    worker = Process(start, tmp_path, "--grace", "0s")
    worker.until(lambda: jobs.state(job) == "running")
    worker.signal()
    assert worker.end() == 0
    assert "did not stop when asked" in worker.log
    assert worker.log.splitlines()[-1].endswith("stopped: 0 jobs succeeded, 0 attempts failed")
    assert run("jobs", "show", job, "--json").json["attempt"] == 0


@pytest.mark.slow
def test_the_second_signal_ends_it_within_two_seconds_although_a_thread_goes_on(
    start: Start, jobs: Jobs, run: Run, tmp_path: Path
) -> None:
    job = jobs.ready("stuck", "{}")
    worker = Process(start, tmp_path)
    worker.until(lambda: jobs.state(job) == "running")
    worker.signal(signal.SIGINT)
    worker.says("stopping: waiting up to 30s for 1 running job")
    asked = time.monotonic()
    worker.signal(signal.SIGINT)
    assert worker.end() == 0
    assert time.monotonic() - asked < 4  # two, and as much again for a busy machine
    assert f"stopping: handing back 1 running job: stuck {job}\n" in worker.log
    assert f"stuck {job} did not stop when asked: the worker hands it back, and ends although" in worker.log
    shown = run("jobs", "show", job, "--json").json
    assert (shown["state"], shown["attempt"], shown["failures"]) == ("ready", 0, [])


def test_a_third_signal_ends_it_on_the_spot(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.ready("stuck", "{}")
    worker = Process(start, tmp_path)
    worker.until(lambda: jobs.state(job) == "running")
    worker.signal()
    worker.says("stopping")
    worker.signal()
    worker.says("asked to stop")
    worker.signal()
    assert worker.end() == 128 + signal.SIGTERM


def test_what_a_person_must_fix_is_one_line(run: Run, empty_dsn: str) -> None:
    for argv, said in (
        (("-d", empty_dsn), 'run "stepwell migrate"'),
        (("--lease", "1s"), "a lease must be at least three times the renewal"),
        (("--poll", "often"), "--poll is 'often'"),
        (("--log-level", "loud"), "--log-level is 'loud'"),
        (("-q", "a\nb"), "queue is 'a\\nb'"),
        (("-q", "a*b"), "a * may only be the last character"),
        (("-q", "mail=2", "-q", "default"), "--queue is 'default' and 'mail=2'"),
        (("-q", "mail=2", "-c", "5"), "--concurrency is 5 and --queue 'mail=2'"),
        (("-q", "mail=two"), "--queue is 'mail=two': write it as mail=2"),
        (("-q", "=2"), "--queue is '=2'"),
        (("-q", "mail=0"), "queues['mail'] is 0"),
        (("-q", "mail=2", "-q", "mail=3"), "--queue names 'mail' twice"),
        (("--balance", "fair"), "balance is 'fair'"),
        (("--balance", "default=3,mail"), "--balance is 'mail': write it as"),
        (("-q", "mail", "--balance", "other=3"), "balance gives a weight to 'other'"),
    ):
        ran = run("worker", "shop:app", *argv)
        assert ran.code in (1, 2)
        assert ran.out == ""
        assert said in ran.err
        assert ran.err.count("\n") == 1


def test_an_app_with_a_database_of_its_own_is_not_moved_to_another(
    run: Run, dsn: str, empty_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settled.py").write_text(f"from stepwell import App\napp = App({empty_dsn!r})\n")
    monkeypatch.chdir(tmp_path)
    ran = run("worker", "settled:app", "-d", dsn)
    assert ran.code == 1
    assert "names its database in the code" in ran.err


def test_a_mistyped_queue_is_warned_about_and_the_worker_goes_on(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    worker = Process(start, tmp_path, "-q", "mial", "-q", "default")
    job = jobs.ready("add", '{"x": 1}')
    worker.until(lambda: jobs.state(job) == "succeeded")
    assert "no task of this app has the queue 'mial', and no job is ready in it: did you mean 'mail'?" in worker.log
    worker.signal()
    assert worker.end() == 0
    assert "stopping: no job is running" in worker.log
    assert worker.log.splitlines()[-1].endswith("stopped: 1 job succeeded, 0 attempts failed")
