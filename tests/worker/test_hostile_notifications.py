"""Anybody who may connect can notify: a notification costs a claim, and stops nobody."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from stepwell import App, Worker


@pytest.mark.parametrize(
    "payload",
    [
        "0 0 -999999999999999999 default",
        "0 0 999999999999999999 default",
        "-99999 -99999 -999999999999999999 default",
        "99999 99999 0 default",
        "0 0 0 " + "q" * 200,
        "0 0 0 ",
        "0 0 0",
        "x",
        "",
        "\u0660 0 0 default",
        "0 0 1e9 default",
    ],
)
async def test_no_notification_keeps_a_worker_from_claiming(
    app: App, conn: psycopg.Connection[Any], payload: str
) -> None:
    @app.task
    async def work() -> int:
        return 1

    async with Worker(app, queues=["*"]):
        assert await (await work.aenqueue()).aresult(timeout="20s") == 1
        conn.execute("select pg_notify('stepwell_ready_at', %s)", (payload,))
        for _ in range(3):
            assert await (await work.aenqueue()).aresult(timeout="1s") == 1


async def test_a_flood_of_invented_queues_holds_up_no_job(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> int:
        return 1

    async with Worker(app, queues=["*"]):
        assert await (await work.aenqueue()).aresult(timeout="20s") == 1
        conn.execute("select pg_notify('stepwell_ready_at', '0 0 0 invented' || n) from generate_series(1, 20000) n")
        assert await (await work.aenqueue()).aresult(timeout="2s") == 1
