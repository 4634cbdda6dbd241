"""A lost database is logged once for the whole worker."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, Worker
from stepwell.telemetry.bus import EventBus, Telemetry
from stepwell.telemetry.worker import DatabaseBack, DatabaseLost, UpkeepFailed
from stepwell.worker import worker_connection
from stepwell.worker.connections import Outage


def test_the_first_part_to_lose_the_database_and_the_last_to_have_it_back_are_logged() -> None:
    heard: list[Telemetry] = []
    events = EventBus()
    events.subscribe(heard.append)
    outage, one, other = Outage(events), object(), object()
    error = OSError("gone")
    outage.end(one)
    assert not heard
    for part in (one, other, one):
        outage.begin(part, "claim", error)
    outage.end(other)
    assert [type(event) for event in heard] == [DatabaseLost]
    outage.end(one)
    assert [type(event) for event in heard] == [DatabaseLost, DatabaseBack]


async def test_a_worker_that_loses_its_database_says_so_once_and_once_that_it_is_back(
    app: App, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def work() -> int:
        return 1

    fetch = worker_connection.afetch
    asked: set[str] = set()
    away = True

    async def refuse(connection: Any, query: Any) -> Any:
        if away:
            asked.add(query.text)
            raise psycopg.OperationalError("the server closed the connection")
        return await fetch(connection, query)

    worker = Worker(app, poll="50ms")
    heard = Heard(worker)
    async with worker:
        monkeypatch.setattr(worker_connection, "afetch", refuse)
        job = await work.aenqueue()
        await auntil(lambda: len(asked) >= 4)
        away = False
        assert await job.aresult("20s") == 1
        await heard.wait_for(DatabaseBack)
    assert len(heard.of(DatabaseLost)) == len(heard.of(DatabaseBack)) == 1
    assert not heard.of(UpkeepFailed)
