"""Anybody who may connect can notify: a notification costs a claim, and stops nobody."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Worker
from stepwell.worker.claiming.fetcher import _MOST_NOTIFIED  # pyright: ignore[reportPrivateUsage]


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

    # It polls too late to help: only notifications bring it to these jobs.
    async with Worker(app, queues=["*"], poll="10m"):
        assert await (await work.aenqueue()).aresult(timeout="60s") == 1
        conn.execute("select pg_notify('stepwell_ready_at', %s)", (payload,))
        for _ in range(3):
            assert await (await work.aenqueue()).aresult(timeout="60s") == 1


async def test_a_flood_of_invented_queues_holds_up_no_job(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> int:
        return 1

    async with Worker(app, queues=["*"], poll="10m") as worker:
        assert await (await work.aenqueue()).aresult(timeout="60s") == 1
        [fetcher] = worker._current.slots.fetchers  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        most = 0

        async def has_ended() -> bool:
            nonlocal most
            most = max(most, len(fetcher._new_ranges) + len(fetcher._ranges))  # pyright: ignore[reportPrivateUsage]
            info = await job.ainfo()
            return info is not None and info.state == "succeeded"

        conn.execute("select pg_notify('stepwell_ready_at', '0 0 0 invented' || n) from generate_series(1, 20000) n")
        job = await work.aenqueue()
        await auntil(has_ended)
    # Not the time that it takes, but the number of queues to be claimed from: the poller adds the one that has the job.
    assert most <= _MOST_NOTIFIED + 1
