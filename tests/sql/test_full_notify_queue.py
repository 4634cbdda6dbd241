"""A session that listens and stays in a transaction fills the queue of notifications: no commit may fail by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import App, Worker
from stepwell.embedded import EmbeddedPostgres
from stepwell.postgres.migrate import migrate
from tests.conftest import postgres_bin_dir


@pytest.fixture
def small_queue(open_dir: Path) -> Iterator[str]:
    """A server whose queue holds half a megabyte, where it would be eight gigabytes."""
    place = open_dir / "pg"
    server = EmbeddedPostgres(place, bin_dir=postgres_bin_dir())
    dsn = server.start()
    try:
        with psycopg.connect(dsn, autocommit=True) as owner:
            if owner.info.server_version < 170000:
                pytest.skip("before 17 the size of the queue cannot be set")
            owner.execute("alter system set max_notify_queue_pages = 64")
        server.stop()
        dsn = server.start()
        with psycopg.connect(dsn, autocommit=True) as owner:
            migrate(owner)
        yield dsn
    finally:
        server.stop()


@pytest.mark.slow
async def test_jobs_are_put_in_and_run_while_the_queue_of_notifications_is_full(small_queue: str) -> None:
    with psycopg.connect(small_queue) as idle, psycopg.connect(small_queue, autocommit=True) as sender:
        idle.execute("listen anything")
        idle.commit()
        idle.execute("select 1")
        # One that sends on regardless finds that it is full.
        with pytest.raises(psycopg.OperationalError, match="too many notifications"):
            _fill(sender)
        async with App(small_queue) as app:

            @app.task
            async def work() -> int:
                return 1

            async with Worker(app, poll=0.1):
                job = await work.aenqueue()
                assert await job.aresult(20) == 1
                sender.execute("select stepwell.pause(_queue => 'other')")
                await (await work.using(delay=60).aenqueue()).acancel()


def _fill(sender: psycopg.Connection[Any]) -> None:
    for n in range(200):
        sender.execute("select pg_notify('anything', %s || repeat('x', 7000))", (str(n),))
