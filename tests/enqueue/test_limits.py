"""How long a connection waits for its server, and who hears that the server has handed over."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import App, DatabaseTimeout
from stepwell.postgres import database as db
from stepwell.postgres import switchover
from stepwell.postgres.queries import Query
from stepwell.postgres.switchover import Switchovers


def test_a_connection_of_ones_own_has_the_whole_limit_for_every_statement(dsn: str) -> None:
    with App(dsn, call_timeout="2s") as app, app.database.connect() as connection:
        assert connection.patience == 2


def test_without_a_limit_the_error_does_not_say_that_one_was_set(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "_DEFAULT_WAIT", 0.1)
    said = r"gave no connection within 100ms: all 1 connections .*; raise App\(pool_size"
    with (
        App(dsn, pool_size=1, call_timeout=None) as app,
        app.database.connection(),
        pytest.raises(DatabaseTimeout, match=said),
    ):
        app.schedules()


class Keeper:
    def drop_old(self) -> None: ...


@pytest.fixture
def switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switching_often")
def test_switchovers_are_counted_while_other_threads_register(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switchover, "_MOMENT", -1.0)  # each is one of its own
    switchovers = Switchovers()
    kept = [Keeper() for _ in range(500)]
    for keeper in kept:
        switchovers.register(keeper)
    over = threading.Event()

    def register() -> None:
        while not over.is_set():
            keepers = [Keeper() for _ in range(20)]
            for keeper in keepers:
                switchovers.register(keeper)

    def notice() -> None:
        for _ in range(200):
            switchovers.notice(psycopg.errors.ReadOnlySqlTransaction())

    with ThreadPoolExecutor(3) as threads:
        registering = threads.submit(register)
        noticing = [threads.submit(notice) for _ in range(2)]
        try:
            for each in noticing:
                each.result()
        finally:
            over.set()
        registering.result()
    assert switchovers.count == 400


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_call_with_a_limit_of_its_own_names_that_limit_and_no_setting(
    dsn: str, tmp_path: Path, is_async: bool
) -> None:
    async def said(app: App, query: Query[Any], within: float | None) -> str:
        call = app.database.afetch(query, within) if is_async else asyncio.to_thread(app.database.fetch, query, within)
        with pytest.raises(DatabaseTimeout) as refused:
            await call
        return str(refused.value)

    silent = Query("select pg_sleep(60)", (), str)
    away = App(f"postgresql:///postgres?host={tmp_path}", call_timeout="250ms")
    assert "no connection within 150ms: " in await said(away, silent, 0.15)
    assert "no connection within 250ms (App(call_timeout=...) sets this limit): " in await said(away, silent, None)
    async with App(dsn, call_timeout="300ms") as app:
        assert "has not answered for 200ms. " in await said(app, silent, 0.2)
        assert "has not answered for 300ms (App(call_timeout=...) sets this limit). " in await said(app, silent, None)
