"""A worker that is started before its database."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from stepwell import App, DatabaseError, Worker
from stepwell.telemetry.worker import DatabaseAwaited, WorkerStarted
from tests.waiting import Heard, until

from .server import Server

pytestmark = pytest.mark.crash


def app_on(url: str) -> App:
    app = App(url)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    return app


@pytest.mark.slow
async def test_a_worker_waits_for_its_database_and_says_so_once(primary: Server) -> None:
    primary.stop()
    app = app_on(primary.dsn)
    worker = Worker(app)
    heard = Heard(worker)
    running = asyncio.create_task(worker.run())
    said = await heard.wait_for(DatabaseAwaited)
    assert "waiting for database postgres at" in said.text()
    await asyncio.sleep(1)  # another try, or two
    assert not running.done()
    await asyncio.to_thread(primary.start)
    await heard.wait_for(WorkerStarted, within=5)
    assert len(heard.of(DatabaseAwaited)) == 1
    assert await (await app.tasks["add"].aenqueue(1, 2)).aresult(timeout="20s") == 3
    worker.stop()
    await running
    await app.aclose()


@pytest.mark.parametrize("silent", [False, True])
async def test_a_worker_that_waits_can_be_stopped(primary: Server, silent: bool) -> None:
    if silent:
        primary.pause()
    else:
        primary.stop()
    # Without the stop it would wait for ten minutes, even for the first answer.
    worker = Worker(app_on(make_conninfo(primary.dsn, connect_timeout=600)))
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.2)
    worker.stop()
    async with asyncio.timeout(60):
        await running


async def test_a_worker_that_is_not_to_wait_does_not(primary: Server) -> None:
    primary.stop()
    with pytest.raises(DatabaseError, match="is Postgres running there"):
        await Worker(app_on(primary.dsn), wait=False).run()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dbname": "nowhere"}, "does not exist"),
        ({"user": "nobody-known"}, "does not exist"),
        ({"dbname": "template1"}, "stepwell migrate"),
    ],
)
async def test_what_only_a_person_can_mend_is_not_waited_for(
    primary: Server, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(DatabaseError, match=said):
        await Worker(app_on(make_conninfo(primary.dsn, **changed))).run()


_PROGRAM = """
from stepwell import App

app = App()


@app.task
def work() -> None: ...
"""


@pytest.mark.slow
def test_the_command_waits_until_it_is_stopped(primary: Server, tmp_path: Path) -> None:
    primary.stop()
    (tmp_path / "prog.py").write_text(_PROGRAM)
    command = [sys.executable, "-m", "stepwell", "worker", "prog:app"]
    environment = {**os.environ, "STEPWELL_DATABASE_URL": primary.dsn}
    impatient = subprocess.run(
        [*command, "--no-wait"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert impatient.returncode == 1
    assert "is Postgres running there" in impatient.stderr
    with (tmp_path / "log").open("w") as log:
        waiting = [
            subprocess.Popen([*command, *options], cwd=tmp_path, env=environment, stdout=log, stderr=log)
            for options in ([], ["--processes", "2"])
        ]
    until(lambda: (tmp_path / "log").read_text().count("waiting for database") == 3)
    for each in waiting:
        each.send_signal(signal.SIGTERM)
    assert [each.wait(10) for each in waiting] == [0, 0]
    assert "Traceback" not in (tmp_path / "log").read_text()
