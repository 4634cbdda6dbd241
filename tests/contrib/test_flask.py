"""Flask over real HTTP: the site enqueues and shows jobs, `flask stepwell worker` runs them in the site's context."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from flask import Flask, appcontext_pushed, current_app
from waiting import until
from werkzeug.serving import make_server

from stepwell import App, ConfigError, Worker
from stepwell.contrib.flask import Stepwell
from stepwell.testing import drain

from .http import events

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def serve(site: Flask) -> Generator[str]:
    server = make_server("127.0.0.1", 0, site, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
async def test_the_example_shows_a_job_that_its_command_runs(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASK_STEPWELL_DATABASE_URL", empty_dsn)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))))
    command = [sys.executable, "-m", "flask", "--app", "examples.flask_app", "stepwell"]
    migrated = subprocess.run(  # noqa: ASYNC221
        [*command, "migrate"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "applied 0001" in migrated.stdout, migrated.stderr
    example = importlib.import_module("examples.flask_app")
    worker = subprocess.Popen(  # noqa: ASYNC220
        [*command, "worker", "-c", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        with serve(example.site) as url:
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                answer = await client.post("/render", params={"pages": 3})
                assert answer.status_code == 202
                path = f"/jobs/{answer.json()['id']}/events"
                seen = [event async for event in events(client, path)]
                assert seen[-1].data["result"] == "3 pages of examples.flask_app"
                assert [event async for event in events(client, path, seen[-1].id)] == [seen[-1]]
                assert (await client.get(f"/jobs/{'0' * 8}-0000-7000-8000-{'0' * 12}/events")).status_code == 404
    finally:
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=30)
        example.jobs.close()
    assert worker.returncode == 0, said


def test_an_app_takes_the_database_of_the_site(dsn: str) -> None:
    jobs = App()
    extension = Stepwell(jobs=jobs)
    site = Flask("shop")
    site.config["STEPWELL_DATABASE_URL"] = dsn
    extension.init_app(site)
    assert site.extensions["stepwell"].jobs is jobs

    @jobs.task
    def note() -> None: ...

    job = note.enqueue()
    assert until(job.exists)
    runner = site.test_cli_runner()
    assert "nothing to do" in runner.invoke(args=["stepwell", "migrate"]).output
    assert "Error" in runner.invoke(args=["stepwell", "worker", "--grace", "soon"]).output
    jobs.close()
    with pytest.raises(ConfigError, match="names its database in the code"):
        Stepwell(site, App("postgresql:///other"))
    with pytest.raises(ConfigError, match=r"give the stepwell\.App"):
        Stepwell(site)


def test_a_factory_makes_sites_with_databases_of_their_own(dsn: str, empty_dsn: str) -> None:
    jobs = App()
    contexts: list[tuple[str, int]] = []

    @jobs.task
    def note() -> None:
        contexts.append((current_app.name, len(entered)))

    entered: list[str] = []

    def enter(site: Flask) -> None:
        entered.append(site.name)

    def create_app(name: str, url: str | None) -> Flask:
        site = Flask(name)
        site.config["STEPWELL_DATABASE_URL"] = url
        appcontext_pushed.connect(enter, site)
        Stepwell(site, jobs)
        return site

    create_app("first", empty_dsn)
    create_app("second", dsn)
    create_app("third", None)
    note.enqueue()
    drain(jobs)
    jobs.close()
    assert contexts == [("third", 1)], "in the last context, and in no other around it"
    assert jobs.database.address.given == dsn


async def test_a_worker_without_a_site_says_so(app: App) -> None:
    Stepwell(jobs=app)

    @app.task
    async def note() -> None: ...

    async with Worker(app):
        job = await note.using(max_attempts=1).aenqueue()
        with pytest.raises(Exception, match="call init_app"):
            await job.aresult(timeout="20s")
