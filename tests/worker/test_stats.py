"""How runs ended is counted by the minute."""

from __future__ import annotations

import psycopg
from waiting import auntil

from stepwell import App, Cancel, Fail, Snooze, Worker


async def counted(app: App) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    async with app.database.aconnection() as connection:
        rows = await connection.execute(
            "select task, queue, sum(succeeded), sum(failed), sum(cancelled), sum(handed_back) from stepwell.stats"
            " group by 1, 2"
        )
        return {(row[0], row[1]): row[2:] for row in await rows.fetchall()}


async def test_each_end_is_counted_by_task_and_queue(app: App) -> None:
    @app.task
    async def good() -> None: ...

    @app.task(transaction=False)
    async def bad(how: str) -> None:
        match how:
            case "fail":
                raise Fail("no")
            case "cancel":
                raise Cancel("no")
            case _:
                raise Snooze("1h")

    for _ in range(2):  # what two workers count is added up
        async with Worker(app, queues=["default", "mail"]) as worker:
            jobs = [await good.aenqueue() for _ in range(3)]
            jobs.append(await good.using(queue="mail").aenqueue())
            for job in jobs:
                await job.aresult("20s")
            for how in ("fail", "cancel", "snooze"):
                await bad.aenqueue(how)
            await auntil(lambda: worker.runs_ended == 7)
    found = await counted(app)
    assert found["good", "default"] == (6, 0, 0, 0)
    assert found["good", "mail"] == (2, 0, 0, 0)
    assert found["bad", "default"] == (0, 2, 2, 2)


def test_old_counters_are_forgotten(conn: psycopg.Connection[object]) -> None:
    conn.execute("select stepwell.add_stats('{t}', '{q}', '{1}', '{0}', '{0}', '{0}', '{0.5}')")
    conn.execute(
        "insert into stepwell.stat (minute, task, queue) select now() - interval '8 days', n::text, 'q'"
        " from generate_series(1, 5) as n"
    )
    assert conn.execute(
        "select stepwell.prune_stats(_limit => 3), stepwell.prune_stats(), stepwell.prune_stats()"
    ).fetchone() == (3, 2, 0)
    assert conn.execute("select task, succeeded, seconds from stepwell.stats").fetchall() == [("t", 1, 0.5)]
