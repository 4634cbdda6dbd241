"""Postgres goes down in mid-flight and comes back: the workers go on by themselves."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from stepwell import App
from stepwell.embedded import EmbeddedPostgres, lifetime
from stepwell.postgres.migrate import migrate
from tests.conftest import postgres_bin_dir

from .audit import audit, count, ended, enqueue, enqueue_mixed, left, open_ledger, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, with a ledger."""
    place = Path(tempfile.mkdtemp(prefix="sw"))
    place.chmod(0o755)
    with EmbeddedPostgres(place / "pg", bin_dir=postgres_bin_dir()) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            migrate(connection)
            open_ledger(connection)
        yield server
    shutil.rmtree(place)


@pytest.fixture
def fleet(server: EmbeddedPostgres) -> Iterator[Fleet]:
    fleet = Fleet(server.dsn, make_conninfo(server.dsn, application_name="ledger"))
    yield fleet
    fleet.close()


def crash(server: EmbeddedPostgres) -> None:
    """Restart as `pg_ctl restart -m immediate` does: no goodbyes, recovery at the start."""
    home = lifetime.home_of(server.path)
    master = lifetime.postmaster(home)
    assert master
    os.kill(master.pid, signal.SIGQUIT)
    until(lambda: lifetime.listener(master) is None, "the server is down")
    server.start()


def connected(server: EmbeddedPostgres) -> psycopg.Connection[Any]:
    return psycopg.connect(server.dsn, autocommit=True)


def test_an_immediate_restart_in_mid_flight_costs_no_job_and_no_run(
    server: EmbeddedPostgres, fleet: Fleet, dice: random.Random
) -> None:
    workers = [fleet.start(concurrency=20), fleet.start(concurrency=20)]
    with connected(server) as witness:
        enqueue(witness, "quick", 5, ms=4000)
        enqueue(witness, "plain", 5, ms=4000)
        until(lambda: started(witness, 1) == 10, "the long ones are running")
    for _ in range(3):
        with connected(server) as witness:
            enqueue_mixed(witness, dice, quick=150, plain=50, paid=50, paid_plain=50)
            enough = ended(witness) + dice.randrange(1, 150)
            until(lambda witness=witness, enough=enough: ended(witness) > enough, "some are done")
        crash(server)
    with connected(server) as witness:
        until(lambda: not left(witness), "all jobs are done")
        assert all(worker.alive for worker in workers)
        assert not any(worker.heard("LeaseLost") for worker in workers)
        # Only the handler of a transactional task meets the crash itself.
        audit(witness, failures={"error"})
        again = "select count(*) from stepwell.history where attempt <> 1 and task not in ('paid', 'paid_plain')"
        assert count(witness, again) == 0
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert not worker.noise


@pytest.mark.slow
async def test_an_enqueue_works_again_as_soon_as_the_server_does(server: EmbeddedPostgres, fleet: Fleet) -> None:
    fleet.start()
    async with App(server.dsn) as app:

        @app.task
        async def quick(ms: int = 0) -> int:
            return ms

        assert await (await quick.aenqueue()).aresult(timeout="20s") == 1
        crash(server)
        assert await (await quick.aenqueue()).aresult(timeout="20s") == 1
    with connected(server) as witness:
        audit(witness)
