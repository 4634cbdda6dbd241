"""What workers do for all: chores of the leader, and what each has to see to itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from waiting import Heard, auntil

from stepwell import App, Worker
from stepwell.events import LeaderChanged


async def test_what_only_another_app_keeps_has_its_partitions_too(app: App, dsn: str) -> None:
    @app.task
    async def leading() -> None: ...

    other = App(dsn, name="other")

    @other.task(keep="45d")
    async def kept() -> None: ...

    leader = Worker(app)
    heard = Heard(leader)
    async with leader, other, await psycopg.AsyncConnection[Any].connect(dsn, autocommit=True) as connection:
        await heard.wait_for(LeaderChanged)
        async with Worker(other):
            name = (datetime.now(UTC) + timedelta(days=46)).strftime("stepwell.history_%Y%m%d")

            async def made() -> bool:
                row = await (await connection.execute("select to_regclass(%s) is not null", (name,))).fetchone()
                return row == (True,)

            await auntil(made)
