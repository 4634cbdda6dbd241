"""`stepwell worker --processes`: real processes that are killed, replaced, and stopped in order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli.commands import Jobs, Run, Start
from cli.process import Process
from psycopg.conninfo import make_conninfo
from waiting import until

from stepwell.cli.parse import UsageError, size
from stepwell.errors.text import describe_exit
from stepwell.postgres import queries
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.fetch import fetch
from stepwell.supervisor.supervisor import RestartDelay

pytestmark = pytest.mark.crash

PLANT = ("worker", "plant:app")


def pids(jobs: Jobs) -> set[int]:
    """The processes of the workers that are registered."""
    return {worker.pid for worker in fetch(jobs.connection, queries.reads.workers())}


def lives(pid: int) -> bool:
    """Whether a process that is not ours runs; one that has ended and whom nobody has buried does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def held(jobs: Jobs, gate: Path) -> str:
    """A job that runs until the gate is there."""
    return jobs.ready("hold", json.dumps({"until": str(gate)}))


def write(directory: Path, code: str) -> Path:
    (directory / "made.py").write_text(textwrap.dedent(code))
    return directory


def test_so_many_workers_register_and_the_first_signal_drains_all(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = held(jobs, gate)
    process = Process(start, tmp_path, "--processes", "3", "-c", "2", fresh=True)
    # Later than its registration, which others see a moment before the worker does. Stopped then, it just ends.
    process.says("claims from", times=3)
    process.until(lambda: jobs.state(job) == "running")
    working = pids(jobs)
    assert len(working) == 3
    assert process.pid not in working
    process.signal()
    process.says("stopping: waiting up to 30s for 1 running job")
    process.says("stopping: no job is running", times=2)
    later = jobs.ready()
    gate.touch()
    assert process.end() == 0
    assert (jobs.state(job), jobs.state(later), pids(jobs)) == ("succeeded", "ready", set())
    for pid in working:
        assert re.search(rf"INFO stepwell\[{pid}\]: worker .* claims from", process.log)
    assert f"stepwell[{process.pid}]: stopping 3 worker processes" in process.log


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    process = Process(start, tmp_path, "--processes", "2")
    process.until(lambda: len(pids(jobs)) == 2)
    victim, other = pids(jobs)
    os.kill(victim, signal.SIGKILL)
    process.says(f"(pid {victim}) was killed by SIGKILL: starting another in 0.")
    process.until(lambda: len(pids(jobs) - {victim}) == 2)
    assert other in pids(jobs)
    process.signal()
    assert process.end() == 0


@pytest.mark.slow
def test_the_second_signal_hands_running_jobs_back(start: Start, jobs: Jobs, run: Run, tmp_path: Path) -> None:
    job = held(jobs, tmp_path / "never")
    process = Process(start, tmp_path, "--processes", "2")
    process.until(lambda: jobs.state(job) == "running")
    process.signal(signal.SIGINT)
    process.says("waiting up to 30s for 1 running job")
    process.signal()
    assert process.end() == 0
    shown = run("jobs", "show", job, "--json").json
    assert (shown["state"], shown["attempt"], shown["failures"]) == ("ready", 0, [])


@pytest.mark.slow
def test_the_third_signal_kills(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.ready("stuck", "{}")
    process = Process(start, tmp_path, "--processes", "1")
    process.until(lambda: jobs.state(job) == "running")
    (worker,) = pids(jobs)
    os.kill(worker, signal.SIGSTOP)  # it hears nothing now, and nobody kills it for that
    for words in ("stopping 1 worker", "handing back the jobs of 1 worker process;"):
        process.signal()
        process.says(words)
    assert lives(worker)
    process.signal()
    assert process.end() == 128 + signal.SIGTERM
    assert not lives(worker)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["group", "all"])
def test_a_signal_that_reaches_more_than_the_supervisor_is_still_the_first(
    start: Start, jobs: Jobs, tmp_path: Path, to: str
) -> None:
    gate = tmp_path / "gate"
    job = held(jobs, gate)
    process = Process(start, tmp_path, "--processes", "1", start_new_session=True)
    process.until(lambda: jobs.state(job) == "running")
    if to == "group":  # as Ctrl-C on a terminal
        os.killpg(process.pid, signal.SIGINT)
    else:  # as systemd does it
        for pid in (process.pid, *pids(jobs)):
            os.kill(pid, signal.SIGTERM)
    process.says("stopping 1 worker process")
    process.says("waiting up to 30s for 1 running job")
    gate.touch()
    assert process.end() == 0
    assert jobs.state(job) == "succeeded"
    assert "asked to stop" not in process.log


@pytest.mark.slow
def test_a_hangup_drains_and_nobody_reading_the_log_is_no_trouble(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    process = start("worker", "shop:app", "--processes", "1", fresh=True)
    assert process.stdout is not None
    assert process.stderr is not None
    until(lambda: pids(jobs))
    process.stdout.close()
    process.stderr.close()
    job = jobs.ready("shout", "{}", queue="mail", max_attempts=1)
    until(lambda: jobs.state(job) == "failed")
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 0
    assert pids(jobs) == set()


@pytest.mark.slow
def test_processes_end_when_their_supervisor_was_killed(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = held(jobs, gate)
    process = Process(start, tmp_path, "--processes", "2")
    process.until(lambda: len(pids(jobs)) == 2 and jobs.state(job) == "running")
    working = pids(jobs)
    process.signal(signal.SIGKILL)
    process.end()
    until(lambda: process.log.count("the supervisor has ended: stopping") == 2)
    gate.touch()
    until(lambda: not any(map(lives, working)))
    assert (jobs.state(job), pids(jobs)) == ("succeeded", set())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_still_importing_the_app_ends_at_once(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    place = write(
        tmp_path,
        """
        import os, threading
        from pathlib import Path
        Path("pid").write_text(f"{os.getpid()} ")
        threading.Event().wait()
        """,
    )
    process = Process(start, tmp_path, "--processes", "1", command=("worker", "made:app"), cwd=place)
    process.until(lambda: (place / "pid").exists() and (place / "pid").read_text().endswith(" "))
    process.signal(number)
    assert process.end() == (0 if number == signal.SIGTERM else -number)
    until(lambda: not lives(int((place / "pid").read_text())))


@pytest.mark.slow
def test_one_that_was_asked_to_end_is_not_replaced(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    process = Process(start, tmp_path, "--processes", "2")
    process.until(lambda: len(pids(jobs)) == 2)
    one, other = pids(jobs)
    os.kill(one, signal.SIGTERM)
    process.says(f"(pid {one}) was asked to end, not by us: it is not replaced")
    process.until(lambda: pids(jobs) == {other})
    os.kill(other, signal.SIGTERM)
    assert process.end() == 0


@pytest.mark.slow
def test_after_so_many_jobs_a_process_is_replaced_and_no_job_is_lost_or_run_twice(
    start: Start, jobs: Jobs, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    made = [jobs.ready("note", json.dumps({"file": str(notes), "word": str(n)})) for n in range(12)]
    process = Process(start, tmp_path, "--max-jobs", "4", "-c", "2", command=PLANT)
    process.until(lambda: all(jobs.state(job) == "succeeded" for job in made))
    process.signal()
    assert process.end() == 0
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert Counter(word for word, _ in lines) == Counter(str(n) for n in range(12))
    by_process = Counter(pid for _, pid in lines)
    assert len(by_process) >= 2
    assert "its limit being 4: stopping, to be replaced" in process.log
    assert "has reached its limit and ended: starting another" in process.log
    assert "starting another in" not in process.log  # no pause


@pytest.mark.slow
def test_a_process_that_has_grown_too_large_is_replaced(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    process = Process(start, tmp_path, "--max-memory", "0.25GB", command=PLANT)
    process.until(lambda: len(pids(jobs)) == 1)
    before = pids(jobs)
    job = jobs.ready("grow", '{"megabytes": 256}')
    process.says("over 256 MB: stopping, to be replaced")
    process.until(lambda: (now := pids(jobs)) and not now & before)
    assert jobs.state(job) == "succeeded"
    process.signal()
    assert process.end() == 0


@pytest.mark.slow
def test_a_limit_below_what_the_app_needs_is_said_and_lets_jobs_run(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    process = Process(start, tmp_path, "--max-memory", "1MB", command=PLANT)
    process.says("before its first job has ended, over 1 MB: raise the limit")
    assert "to be replaced" not in process.log
    job = jobs.ready("elsewhere", "{}")
    process.until(lambda: jobs.state(job) == "succeeded")
    process.signal()
    assert process.end() == 0


@pytest.mark.slow
def test_a_crash_loop_slows_down_and_ends_when_asked(start: Start, tmp_path: Path) -> None:
    place = write(tmp_path, "import os\nos._exit(3)\n")
    process = Process(start, tmp_path, "--processes", "1", command=("worker", "made:app"), cwd=place)
    process.says("ended with exit code 3: starting another in ", times=3)
    process.signal()
    assert process.end() == 0
    pauses = [float(pause) for pause in re.findall(r"starting another in ([\d.]+) s", process.log)]
    for pause, expected in zip(pauses, (0.5, 1.0, 2.0), strict=False):
        assert expected * 0.79 - 0.05 <= pause <= expected * 1.21 + 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "given", "said"),
    [
        (("--processes", "2"), {"dbname": "no_such_shop"}, "does not exist"),
        (("--processes", "1"), {"dbname": "postgres"}, 'has no stepwell schema yet: run "stepwell migrate"'),
        (("--processes", "1", "--no-wait"), {"host": "127.0.0.1", "port": 1}, "cannot be used"),
    ],
)
def test_a_database_that_refuses_all_at_their_start_ends_all(
    start: Start, dsn: str, tmp_path: Path, options: tuple[str, ...], given: dict[str, Any], said: str
) -> None:
    process = Process(start, tmp_path, *options, "-d", make_conninfo(dsn, **given))
    assert process.end() == 1
    assert said in process.log
    assert "starting another" not in process.log
    assert "while it was stopping" not in process.log


@pytest.mark.slow
def test_a_database_that_refuses_only_later_processes_does_not_end_all(
    start: Start, jobs: Jobs, tmp_path: Path
) -> None:
    process = Process(start, tmp_path, "--processes", "1")
    process.says("claims from")
    (worker,) = pids(jobs)
    jobs.connection.execute("alter schema stepwell rename to hidden")
    os.kill(worker, signal.SIGKILL)
    process.says("starting another in ", times=2)
    process.signal()
    assert process.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("shop:app", "--processes", "2", "--lease", "1s"), "a lease must be at least three times the renewal"),
        (("shop", "--processes", "1", "--grace", "1s"), "'shop' is not MODULE:APP"),
    ],
)
def test_a_wrong_command_line_ends_all(start: Start, tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    process = Process(start, tmp_path, *argv, command=("worker",))
    assert process.end() == 2
    assert said in process.log
    assert "starting another" not in process.log
    assert "while it was stopping" not in process.log


@pytest.mark.slow
def test_an_app_that_cannot_be_imported_ends_all(start: Start, tmp_path: Path) -> None:
    process = Process(start, tmp_path, "--processes", "2", command=("worker", "no_such_shop:app"))
    assert process.end() == 1
    assert "there is no module 'no_such_shop' here" in process.log
    assert "starting another" not in process.log


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--processes", "0"), "--processes"),
        (("--processes", "1001"), "--processes"),
        (("--max-jobs", "0"), "--max-jobs"),
        (("--max-memory", "lots"), "--max-memory is 'lots': write it as '512MB'"),
        (("--processes", "2", "--grace", "soon"), "--grace is 'soon'"),
    ],
)
def test_options_out_of_bounds_start_nothing(run: Run, argv: tuple[str, ...], said: str) -> None:
    ran = run("worker", "shop:app", *argv)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.slow
def test_what_was_typed_reaches_the_processes(start: Start, jobs: Jobs, dsn: str, tmp_path: Path) -> None:
    named = make_conninfo(dsn, application_name="two words")
    command = ("-d", named, "worker", "--reload", "-q", "default", "-q", "mail", "--queue=-odd", "shop:app", "-c", "3")
    process = Process(start, tmp_path, "--processes", "1", command=command)
    process.says("claims from default, mail, -odd in database")
    (worker,) = fetch(jobs.connection, queries.reads.workers())
    assert worker.concurrency == 3
    connected = (
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'two words'"
    )
    assert jobs.connection.execute(connected).fetchone() != (0,)
    process.signal()
    assert process.end() == 0


def command_lines(pid: int) -> dict[int, str]:
    """The arguments of every process that descends from this one, as anybody on the machine can read them."""
    shown = subprocess.run(["ps", "-ww", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    found: dict[int, str] = {}
    rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()]
    above = {pid}
    while above:
        below = {int(row[0]): row[2] for row in rows if len(row) == 3 and int(row[1]) in above}
        found |= below
        above = set(below)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before the command", "after it"])
def test_a_password_is_not_in_the_arguments_of_the_processes(
    start: Start, jobs: Jobs, dsn: str, tmp_path: Path, place: str
) -> None:
    given = ("--database", make_conninfo(dsn, password="open-sesame"))
    command = (*given, *PLANT) if place == "before the command" else (*PLANT, *given)
    without = {name: value for name, value in os.environ.items() if name != ENVIRONMENT}
    process = Process(start, tmp_path, "--processes", "1", command=command, env=without)
    process.until(lambda: len(pids(jobs)) == 1)
    job = jobs.ready("elsewhere", "{}")
    process.until(lambda: jobs.state(job) == "succeeded")
    lines = command_lines(process.pid)
    assert pids(jobs) <= lines.keys()
    assert [line for line in lines.values() if "sesame" in line] == []
    process.signal()
    assert process.end() == 0


@pytest.mark.slow
def test_an_app_that_names_another_database_is_refused_by_the_processes(
    start: Start, dsn: str, empty_dsn: str, tmp_path: Path
) -> None:
    place = write(tmp_path, f"from stepwell import App\napp = App({empty_dsn!r})")
    process = Process(start, tmp_path, "--processes", "1", "-d", dsn, command=("worker", "made:app"), cwd=place)
    assert process.end() == 1
    assert "'made:app' names its database in the code, and --database names another" in process.log


def test_pauses_double_up_to_a_limit_and_start_anew_after_a_good_minute() -> None:
    delay = RestartDelay()
    pauses = [delay.after(1) for _ in range(9)]
    for pause, expected in zip(pauses, (0.5, 1, 2, 4, 8, 16, 30, 30, 30), strict=True):
        assert expected * 0.8 <= pause <= expected * 1.2
    assert delay.after(61) <= 0.6


def test_sizes_are_read_as_postgres_reads_them() -> None:
    assert [size(typed, "it") for typed in ("512MB", "1.5 gb", "64k", "1GiB")] == [
        512 * 1024**2,
        1536 * 1024**2,
        64 * 1024,
        1024**3,
    ]
    for typed in ("", "MB", "-1MB", "0MB", "12", "1PB", "nan"):
        with pytest.raises(UsageError, match="512MB"):
            size(typed, "it")


def test_an_end_is_told_by_the_name_of_its_signal() -> None:
    assert describe_exit(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert describe_exit(-99) == "was killed by signal 99"
    assert describe_exit(3) == "ended with exit code 3"


@pytest.mark.slow
def test_processes_that_the_fleet_was_told_to_stop_are_not_replaced(
    start: Start, jobs: Jobs, run: Run, tmp_path: Path
) -> None:
    process = Process(start, tmp_path, "--processes", "2", command=PLANT)
    process.until(lambda: len(pids(jobs)) == 2)
    assert run("stop", "--all", "-y").out == "asked 2 workers to stop\n"
    assert process.end() == 0
    assert process.log.count("stopping: a stop command asked for it") == 2
