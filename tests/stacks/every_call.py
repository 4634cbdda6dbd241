"""Every public call that takes connection=, in one transaction of the caller's, and what they leave in the database."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from stepwell import App, JobHandle
from stepwell.jobs.task import Task

MANY = 1000
HOSTILE = "a'b\"c\\d{e},%s %(x)s $1 ${f} -- ; é🦆 \\u0000 \n\t"
LARGE = 10**30
KEY = "a'b%s$1{c}"
SCHEDULE = "hour'ly"


class Jobs:
    """The tasks of an app, and two jobs that exist before the caller's transaction."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.task(queue="elsewhere")
        async def note(n: int, text: str = HOSTILE) -> None: ...

        @app.task(queue="elsewhere", unique="{n}", on_conflict="raise")
        async def once(n: int) -> None: ...

        @app.task(queue="elsewhere")
        async def done() -> None: ...

        self.done: Task[[], None] = done
        self.note: Task[..., None] = note
        self.once: Task[..., None] = once
        self.told: JobHandle[Any]
        self.doomed: JobHandle[Any]

    async def begin(self) -> Jobs:
        self.told, self.doomed = await self.note.aenqueue_many([{"n": -1}, {"n": -2}])
        return self


async def ajoin(jobs: Jobs, connection: object) -> None:
    app, note = jobs.app, jobs.note.using(connection=connection, metadata={"by": HOSTILE})
    await note.aenqueue(LARGE, HOSTILE)
    await note.aenqueue_many([{"n": n} for n in range(MANY)])
    await app.aenqueue_many([jobs.once.call(LARGE)], connection=connection)
    group = await app.agroup([jobs.note.call(1), jobs.note.call(2)], then=jobs.done, connection=connection)
    assert await group.acancel(HOSTILE, connection=connection) == 2
    await app.aemit("paid", key=KEY, value={"n": LARGE, "text": HOSTILE}, connection=connection)
    await jobs.told.asend("word", HOSTILE, connection=connection)
    assert await jobs.doomed.acancel(HOSTILE, connection=connection)
    made = await app.aschedule_task(
        jobs.note, "1h", name=SCHEDULE, args={"n": 1}, metadata={"by": HOSTILE}, connection=connection
    )
    schedule = app.schedule_named(SCHEDULE)
    await schedule.apause(connection=connection)
    await schedule.aresume(connection=connection)
    assert (made.args, made.metadata) == ({"n": 1}, {"by": HOSTILE})
    assert await schedule.ainfo(connection=connection) is not None
    await schedule.atrigger(connection=connection)
    assert await app.schedule_named("no such one").adelete(connection=connection) is False


def join(jobs: Jobs, connection: object) -> None:
    app, note = jobs.app, jobs.note.using(connection=connection, metadata={"by": HOSTILE})
    note.enqueue(LARGE, HOSTILE)
    note.enqueue_many([{"n": n} for n in range(MANY)])
    app.enqueue_many([jobs.once.call(LARGE)], connection=connection)
    group = app.group([jobs.note.call(1), jobs.note.call(2)], then=jobs.done, connection=connection)
    assert group.cancel(HOSTILE, connection=connection) == 2
    app.emit("paid", key=KEY, value={"n": LARGE, "text": HOSTILE}, connection=connection)
    jobs.told.send("word", HOSTILE, connection=connection)
    assert jobs.doomed.cancel(HOSTILE, connection=connection)
    made = app.schedule_task(
        jobs.note, "1h", name=SCHEDULE, args={"n": 1}, metadata={"by": HOSTILE}, connection=connection
    )
    schedule = app.schedule_named(SCHEDULE)
    schedule.pause(connection=connection)
    schedule.resume(connection=connection)
    assert (made.args, made.metadata) == ({"n": 1}, {"by": HOSTILE})
    assert schedule.info(connection=connection) is not None
    schedule.trigger(connection=connection)
    assert app.schedule_named("no such one").delete(connection=connection) is False


def found(conn: psycopg.Connection[Any]) -> dict[str, object]:
    """What is in the database, besides the two jobs that were there before."""
    return {
        "jobs": conn.execute(
            "select count(*) from stepwell.job where coalesce((args ->> 'n')::numeric, 0) >= 0"
        ).fetchone(),
        "texts": conn.execute(
            "select args::text, metadata ->> 'by' from stepwell.job"
            " where (args ->> 'n')::numeric = %s and task = 'note'",
            (LARGE,),
        ).fetchall(),
        "cancelled": conn.execute("select error from stepwell.history order by id").fetchall(),
        "events": conn.execute("select name, key, value from stepwell.event order by id").fetchall(),
        "schedules": conn.execute("select name from stepwell.schedule").fetchall(),
    }


NOTHING: dict[str, object] = {"jobs": (0,), "texts": [], "cancelled": [], "events": [], "schedules": []}
EVERYTHING: dict[str, object] = {
    # One, many, a unique one, the callback of the group, and the run of the schedule that was triggered.
    "jobs": (1 + MANY + 1 + 1 + 1,),
    "texts": [(json.dumps({"n": LARGE, "text": HOSTILE}, ensure_ascii=False, separators=(",", ":")), HOSTILE)],
    "cancelled": [(HOSTILE,)] * 3,
    "events": [("paid", KEY, {"n": LARGE, "text": HOSTILE}), ("word", "", HOSTILE)],
    "schedules": [(SCHEDULE,)],
}
