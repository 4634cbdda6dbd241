"""`stepwell dev`: a database, a worker and reloading from one command, and nothing left of it afterwards."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import psycopg
import pytest
from cli.commands import Jobs, Run, Start
from cli.process import Process
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.url import to_url

CODE = """
import os
from stepwell import App
app = App({database})
url = os.environ["STEPWELL_DATABASE_URL"]

@app.task
async def {task}() -> str:
    return url
"""


@pytest.mark.slow
@pytest.mark.crash
def test_jobs_run_in_a_database_of_ones_own_and_the_code_may_change(start: Start, open_dir: Path) -> None:
    (open_dir / "made.py").write_text(CODE.format(database="", task="first"))
    given = {**os.environ, ENVIRONMENT: "postgresql://nowhere.invalid/x"}
    process = Process(start, open_dir, command=("dev", "made:app", "-c", "2"), cwd=open_dir, env=given, fresh=True)
    process.says("claims from default")
    where, export, ignored, *_ = process.log.splitlines()
    assert where.startswith(f"Postgres in {(open_dir / '.stepwell').resolve()}: psql ")
    assert "the worker restarts when a Python file here changes" in where
    assert ignored.startswith(f"{ENVIRONMENT} is set but not used")
    url = shlex.split(where.replace(";", " "))[4]
    with psycopg.connect(url, autocommit=True) as connection:
        jobs = Jobs(connection)
        job = jobs.ready("first", "{}")
        process.until(lambda: jobs.state(job) == "succeeded")
        # Code that knows nothing of Stepwell has its own tables in the same database.
        exported = connection.execute("select result from stepwell.jobs where id = %s", (job,)).fetchone()
        assert exported is not None
        assert export.endswith(f": export {ENVIRONMENT}={shlex.quote(exported[0])}")
        with psycopg.connect(exported[0]) as other:
            other.execute("create table customer (id integer)")
        assert connection.execute("select count(*) from customer").fetchone() == (0,)
        (open_dir / "made.py").write_text(CODE.format(database='"embedded"', task="the_second"))
        job = jobs.ready("the_second", "{}")
        process.until(lambda: jobs.state(job) == "succeeded")
    process.signal(signal.SIGINT)
    assert process.end() == 0
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


@pytest.mark.slow
@pytest.mark.crash
def test_an_app_with_a_database_of_its_own_is_told_what_to_run_instead(
    start: Start, dsn: str, empty_dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "made.py").write_text(CODE.format(database=repr(empty_dsn), task="first"))
    process = Process(start, tmp_path, "-d", dsn, command=("dev", "made:app"), cwd=tmp_path)
    assert process.end() == 2
    assert "'made:app' names its database in the code" in process.log
    assert "run 'stepwell worker --reload made:app'" in process.log


@pytest.mark.slow
@pytest.mark.crash
def test_a_database_that_is_named_is_used(start: Start, jobs: Jobs, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(CODE.format(database="", task="first"))
    job = jobs.ready("first", "{}")
    elsewhere = {**os.environ, ENVIRONMENT: "postgresql://nowhere.invalid/x"}
    process = Process(start, tmp_path, command=("-d", dsn, "dev", "made:app"), cwd=tmp_path, env=elsewhere)
    process.until(lambda: jobs.state(job) == "succeeded")
    exported = jobs.connection.execute("select result from stepwell.jobs where id = %s", (job,)).fetchone()
    assert exported == (to_url(conninfo_to_dict(dsn)),)
    assert process.log.startswith("database ")
    assert ENVIRONMENT not in process.log
    process.signal()
    assert process.end() == 0
    assert not (tmp_path / ".stepwell").exists()


def test_a_database_of_somebody_elses_is_not_migrated(run_without_database: Run, empty_dsn: str) -> None:
    for url in (empty_dsn, make_conninfo(empty_dsn, dbname="absent")):
        ran = run_without_database("dev", "shop:app", "-d", url)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.count("\n") == 1
    assert 'run "stepwell migrate"' in run_without_database("dev", "shop:app", "-d", empty_dsn).err
