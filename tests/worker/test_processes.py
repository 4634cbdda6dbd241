"""Functions in processes: values, failures, death and timeouts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from process_tasks import die, lives, register, stubborn, writer
from waiting import Heard, auntil, until

from stepwell import App, JobCancelled, JobFailed, ProcessCrashed, Retry, Worker
from stepwell.telemetry.jobs import AttemptFailed

ONCE = Retry(max_attempts=1)


@pytest.mark.slow
async def test_a_process_is_killed_at_its_timeout(app: App) -> None:
    sleep = register(app)["sleep"]
    async with Worker(app):
        began = time.monotonic()
        with pytest.raises(JobFailed, match="longer than its timeout"):
            await (await sleep.aenqueue(60)).aresult(timeout="30s")
        assert time.monotonic() - began < 20


@pytest.mark.slow
async def test_processes_return_values_and_failures(app: App) -> None:
    tasks = register(app)
    async with Worker(app):
        pid, squared = await (await tasks["square"].aenqueue(7)).aresult(timeout="30s")
        assert squared == 49
        assert pid != os.getpid()
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await (await tasks["divide"].aenqueue(0)).aresult(timeout="30s")
        assert (await (await tasks["square"].aenqueue(3)).aresult(timeout="30s"))[1] == 9


@pytest.mark.slow
async def test_a_crash_names_the_exit_code_or_signal_and_can_be_excluded_from_retries(app: App) -> None:
    tasks = register(app)
    not_again = app.task(name="not again", process=True, retry=Retry(never_on=(ProcessCrashed,)))(die.fn)
    expected = {
        await not_again.aenqueue(): "the process ended with exit code 7",
        await tasks["kill"].aenqueue(signal.SIGSEGV): "the process was killed by SIGSEGV",
        await tasks["kill"].aenqueue(signal.SIGTERM): "the process was killed by SIGTERM",
        await tasks["kill"].aenqueue(
            signal.SIGKILL
        ): "the process was killed by SIGKILL, perhaps because the machine ran",
    }
    async with Worker(app, process_slots=2) as worker:
        heard = Heard(worker)
        for job, message in expected.items():
            with pytest.raises(JobFailed, match=f"stepwell.errors.ProcessCrashed: {message}"):
                await job.aresult(timeout="60s")
            info = await job.ainfo()
            assert info is not None
            assert info.failures[0].message.startswith(message)
        logged = {event.job_id: event.text() for event in heard.of(AttemptFailed)}
    assert all(message in logged[str(job.id)] for job, message in expected.items())


@pytest.mark.slow
async def test_a_process_that_ends_as_if_all_were_well_fails_its_job_and_frees_its_slot(app: App) -> None:
    tasks = register(app)
    async with Worker(app, process_slots=1):
        for _ in range(2):
            with pytest.raises(JobFailed, match="ended with exit code 0"):
                await (await tasks["leave"].aenqueue()).aresult(timeout="30s")
        assert (await (await tasks["square"].aenqueue(3)).aresult(timeout="30s"))[1] == 9


def state(conn: psycopg.Connection[Any], job_id: object) -> str:
    return (conn.execute("select state::text from stepwell.jobs where id = %s", (job_id,)).fetchone() or ("",))[0]


@pytest.mark.slow
@pytest.mark.parametrize("why", ["cancel", "timeout", "shutdown", "failure"])
async def test_a_process_that_ignores_sigterm_is_dead_before_its_outcome_is_written(
    app: App, conn: psycopg.Connection[Any], tmp_path: Path, why: str
) -> None:
    limit = "1s" if why == "timeout" else None
    task = app.task(process=True, retry=ONCE, timeout=limit, timeout_grace="50ms")(stubborn.fn)
    place = tmp_path / "written"
    worker = Worker(app, process_slots=1, grace="0s")
    running = asyncio.create_task(worker.run())
    job = await task.aenqueue(str(place))
    pid = await auntil(lambda: writer(place))
    if why == "cancel":
        await job.acancel()
    elif why == "shutdown":
        worker.stop()
    elif why == "failure":
        conn.execute("alter function stepwell.renew rename to gone")
    # The moment in which it is no longer running in the database.
    await asyncio.to_thread(until, lambda: state(conn, job.id) != "running" or not lives(pid))
    assert not lives(pid)
    expected = {"cancel": "cancelled", "timeout": "failed", "shutdown": "ready", "failure": "failed"}[why]
    await asyncio.to_thread(until, lambda: state(conn, job.id) == expected)
    worker.stop()
    await asyncio.wait([running])
    assert (running.exception() is not None) == (why == "failure")


@pytest.mark.slow
async def test_stubborn_processes_are_killed_side_by_side(app: App, tmp_path: Path) -> None:
    task = app.task(process=True, retry=ONCE)(stubborn.fn)
    places = [tmp_path / str(n) for n in range(3)]
    async with Worker(app, process_slots=3):
        jobs = [await task.aenqueue(str(place)) for place in places]
        pids = [await auntil(lambda place=place: writer(place)) for place in places]
        began = time.monotonic()
        for job in jobs:
            await job.acancel()
        for job in jobs:
            with pytest.raises(JobCancelled):
                await job.aresult(timeout="20s")
        assert time.monotonic() - began < 6
        assert not any(map(lives, pids))


@pytest.mark.slow
async def test_a_job_that_waits_for_a_process_does_not_begin_after_it_was_cancelled(app: App, tmp_path: Path) -> None:
    tasks = register(app)
    first, second = tmp_path / "first", tmp_path / "second"
    async with Worker(app, process_slots=1):
        holding = await tasks["polite"].aenqueue(str(first))
        await auntil(lambda: writer(first))
        waiting = await tasks["polite"].aenqueue(str(second))
        await auntil(lambda: _runs(waiting))
        await waiting.acancel()
        with pytest.raises(JobCancelled):
            await waiting.aresult(timeout="20s")
        # One that ends with 0 when it is asked to has ended, too; and the next has its place.
        await holding.acancel()
        with pytest.raises(JobCancelled):
            await holding.aresult(timeout="20s")
        assert (await (await tasks["square"].aenqueue(3)).aresult(timeout="30s"))[1] == 9
    assert not second.exists()


@pytest.mark.slow
async def test_processes_that_were_killed_from_outside_are_replaced(app: App) -> None:
    square = register(app)["square"]
    async with Worker(app, process_slots=1):
        pid, _ = await (await square.aenqueue(7)).aresult(timeout="30s")
        os.kill(pid, 9)
        await auntil(lambda: not lives(pid))
        other, squared = await (await square.aenqueue(3)).aresult(timeout="30s")
    assert (other != pid, squared) == (True, 9)


async def _runs(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "running"


@pytest.mark.crash
def test_a_script_without_a_main_guard_is_told_so(app: App, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_NO_GUARD)
    done = subprocess.run([sys.executable, "script.py", dsn], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert 'put the code that starts it under: if __name__ == "__main__":' in done.stderr
    assert "died while they started: standard error says why" in done.stdout
    [job] = app.jobs()
    assert (job.task, job.state) == ("add", "scheduled")  # tried again when the script is mended


_NO_GUARD = """
import asyncio, sys
from stepwell import App, Worker
from stepwell.telemetry.jobs import AttemptFailed

app = App(sys.argv[1])


@app.task(process=True)
def add(a: int, b: int) -> int:
    return a + b


async def main() -> None:
    failed = asyncio.Event()

    def told(event: object) -> None:
        if isinstance(event, AttemptFailed):
            print(event.message, flush=True)
            failed.set()

    async with app, (worker := Worker(app)):
        worker.subscribe(told)
        await add.aenqueue(1, 2)
        await failed.wait()


asyncio.run(main())
"""
