"""Unique keys and everything else that makes jobs: retries, forks, children, schedules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from stepwell import (
    App,
    Cancel,
    Child,
    Context,
    GroupSummary,
    JobExists,
    JobFailed,
    JobHandle,
    Limit,
    Retry,
    Unique,
    Worker,
)
from tests.waiting import auntil

Connection = psycopg.Connection[Any]
ONCE = Retry(max_attempts=1)


def live(conn: Connection) -> int:
    return conn.execute("select count(*) from stepwell.job").fetchall()[0][0]


def keys(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("select job_id, live from stepwell.unique_key order by key").fetchall()


def ticks(conn: Connection) -> list[tuple[str | None, bool]]:
    return conn.execute("select skipped, job_id is not null from stepwell.ticks order by at").fetchall()


async def fail(app: App, conn: Connection, *jobs: JobHandle[Any]) -> None:
    async with Worker(app):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.aresult(timeout="20s")


# Retries.


async def test_a_retry_takes_the_key_again_and_raises_if_another_job_has_it(app: App, conn: Connection) -> None:
    @app.task(unique="{n}", retry=ONCE)
    async def work(n: int) -> None:
        raise ValueError("no")

    old = await work.aenqueue(1)
    await fail(app, conn, old)
    new = await work.aenqueue(1)
    with pytest.raises(JobExists, match="cannot be retried") as caught:
        await old.aretry()
    assert caught.value.job == new
    assert await app.aretry_jobs(everything=True) == 0
    info = await old.ainfo()
    assert info is not None
    assert info.state == "failed"
    await new.acancel()
    assert await old.aretry()
    assert keys(conn) == [(old.id, True)]
    assert not (await work.aenqueue(1)).inserted
    assert not await old.aretry()


def test_a_sync_retry_raises_too(dsn: str, conn: Connection) -> None:
    with App(dsn) as app:

        @app.task(unique="{n}")
        def work(n: int) -> None: ...

        old = work.enqueue(1)
        old.cancel()
        new = work.enqueue(1)
        with pytest.raises(JobExists) as caught:
            old.retry()
        assert caught.value.job == new


async def test_of_many_retried_jobs_with_one_key_one_comes_back(app: App, conn: Connection) -> None:
    @app.task(unique="{n}", retry=ONCE)
    async def work(n: int) -> None: ...

    @app.task
    async def plain() -> None: ...

    for _ in range(3):
        await (await work.aenqueue(1)).acancel()
    other = await plain.aenqueue()
    await other.acancel()
    assert await app.aretry_jobs(state="cancelled") == 2
    assert conn.execute("select task from stepwell.job order by task").fetchall() == [("plain",), ("work",)]
    assert conn.execute("select count(*) from stepwell.history").fetchone() == (2,)
    assert len(keys(conn)) == 1


async def test_a_retry_within_the_period_takes_back_its_own_key(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h"), retry=ONCE)
    async def work(n: int) -> None:
        raise ValueError("no")

    job = await work.aenqueue(1)
    await fail(app, conn, job)
    assert keys(conn) == [(job.id, False)]
    assert await job.aretry()
    assert keys(conn) == [(job.id, True)]
    conn.execute("insert into stepwell.clock select clock_timestamp() + interval '2 hours'")
    assert not (await work.aenqueue(1)).inserted
    await job.acancel()
    assert keys(conn) == []


async def test_a_retry_after_the_period_is_refused_within_the_period_of_another(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h"), retry=ONCE)
    async def work(n: int) -> None:
        raise ValueError("no")

    old = await work.aenqueue(1)
    await fail(app, conn, old)
    conn.execute("insert into stepwell.clock select clock_timestamp() + interval '2 hours'")
    new = await work.aenqueue(1)
    assert new.inserted
    await fail(app, conn, new)
    with pytest.raises(JobExists) as caught:
        await old.aretry()
    assert caught.value.job == new
    conn.execute("update stepwell.clock set at = at + interval '2 hours'")
    assert await old.aretry()


async def test_a_retried_job_that_had_started_needs_no_key_until_start(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", until="start"), retry=ONCE)
    async def work(n: int) -> None:
        raise ValueError("no")

    old = await work.aenqueue(1)
    await fail(app, conn, old)
    new = await work.aenqueue(1)
    assert await old.aretry()
    assert keys(conn) == [(new.id, True)]
    await new.acancel()
    newer = await work.aenqueue(1)
    with pytest.raises(JobExists) as caught:
        await new.aretry()
    assert caught.value.job == newer


async def test_a_retry_of_the_throttled_does_not_lengthen_its_period(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h", on_conflict="throttle"), retry=ONCE)
    async def work(n: int) -> None:
        raise ValueError("no")

    job = await work.aenqueue(1)
    await fail(app, conn, job)
    conn.execute("insert into stepwell.clock select clock_timestamp() + interval '2 hours'")
    assert await job.aretry()
    assert (await work.aenqueue(1)).inserted


# Forks, children and edits.


async def test_a_fork_has_no_unique_key_and_the_same_limits(app: App, conn: Connection) -> None:
    @app.task(unique="{n}", limit=Limit(1, key="one"))
    async def work(ctx: Context, n: int) -> int:
        await ctx.step(_one)
        await ctx.sleep("1h")
        return n

    job = await work.aenqueue(1)
    async with Worker(app):
        await auntil(lambda: conn.execute("select 1 from stepwell.job where state = 'waiting'").fetchone())
    forked = await app.afork(job, step="_one")
    assert forked.id != job.id
    assert keys(conn) == [(job.id, True)]
    [(admission,)] = conn.execute("select admission from stepwell.job where id = %s", (forked.id,)).fetchall()
    assert admission == {"limits": [{"key": "one", "most": 1}]}
    await forked.acancel()
    assert keys(conn) == [(job.id, True)]


async def _one() -> int:
    return 1


async def test_a_child_whose_key_is_taken_fails_the_attempt_of_its_parent_until_the_key_is_free(
    app: App, conn: Connection
) -> None:
    told: list[BaseException] = []

    @app.task(unique="{n}")
    async def part(n: int) -> int:
        return n

    @app.task(retry=Retry(initial="20ms", cap="20ms", max_attempts=1000))
    async def whole(ctx: Context, n: int) -> int:
        child: Child[int] = ctx.spawn(part, n)
        try:
            return await child
        except JobExists as error:
            told.append(error)
            raise

    taken = await part.using(delay="1h").aenqueue(1)
    parents = [await whole.aenqueue(n) for n in range(5)]
    async with Worker(app):
        # One parent does not fail the others, although all spawn together.
        for n in (0, 2, 3, 4):
            assert await parents[n].aresult(timeout="20s") == n
        await auntil(lambda: len(told) >= 2)
        error = told[0]
        assert isinstance(error, JobExists)
        assert error.job == taken
        assert (await part.aenqueue(1)).id == taken.id
        await taken.arun_now()
        assert await parents[1].aresult(timeout="20s") == 1
    assert keys(conn) == []


async def test_a_child_takes_its_key(app: App, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def part(n: int) -> int:
        return n

    @app.task
    async def whole(ctx: Context) -> int:
        return await ctx.spawn(part.using(delay="1h"), 1)

    job = await whole.aenqueue()
    async with Worker(app):
        await auntil(lambda: conn.execute("select 1 from stepwell.job where task = 'part'").fetchone())
    assert not (await part.aenqueue(1)).inserted
    await job.acancel()
    assert (await part.aenqueue(1)).inserted


async def test_new_args_do_not_change_the_key(app: App, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def work(n: int) -> int:
        return n

    job = await work.aenqueue(1)
    assert await job.aedit_args(2)
    assert not (await work.aenqueue(1)).inserted
    assert (await work.aenqueue(2)).inserted


# Schedules.


async def test_a_tick_whose_key_is_taken_is_skipped(app: App, conn: Connection) -> None:
    @app.schedule("100ms", args={"n": 1})
    @app.task(unique="{n}")
    async def beat(n: int) -> int:
        return n

    job = await beat.using(delay="1h").aenqueue(1)
    async with Worker(app):
        await auntil(lambda: len(ticks(conn)) >= 3)
        assert set(ticks(conn)) == {("unique", False)}
        assert live(conn) == 1
        await job.acancel()
        await auntil(lambda: (None, True) in ticks(conn))


async def test_ticks_that_were_missed_together_take_the_key_once(app: App, conn: Connection) -> None:
    @app.schedule("1m", args={"n": 1}, catchup=5, overlap="allow")
    @app.task(unique="{n}")
    async def beat(n: int) -> None: ...

    @app.schedule("1m", overlap="allow")
    @app.task
    async def other() -> None: ...

    conn.execute("insert into stepwell.clock values ('2030-01-01')")
    async with Worker(app):
        await auntil(lambda: conn.execute("select count(*) from stepwell.schedule").fetchone() == (2,))
    conn.execute("update stepwell.clock set at = at + interval '5 minutes 1 second'")
    await app.apause("default")
    async with Worker(app):
        await auntil(lambda: conn.execute("select count(*) from stepwell.ticks where name = 'beat'").fetchone() == (5,))
        await auntil(lambda: conn.execute("select 1 from stepwell.ticks where name = 'other'").fetchone())
    found = conn.execute("select skipped from stepwell.ticks where name = 'beat' order by at").fetchall()
    assert found == [(None,), *[("unique",)] * 4]
    assert conn.execute("select task from stepwell.job order by task").fetchall() == [("beat",), ("other",)]


async def test_a_run_that_is_replaced_leaves_its_key_to_the_next(app: App, conn: Connection) -> None:
    began: list[object] = []

    @app.schedule("200ms", args={"n": 1}, overlap="replace")
    @app.task(unique="{n}")
    async def beat(ctx: Context, n: int) -> None:
        began.append(ctx.scheduled_for)
        await asyncio.sleep(60)

    async with Worker(app):
        await auntil(lambda: len(began) >= 3)
        assert ("unique", False) not in ticks(conn)
        assert len(keys(conn)) == 1
        assert not (await beat.aenqueue(1)).inserted


async def test_a_tick_does_not_wait_for_a_transaction_that_has_taken_the_key(
    app: App, dsn: str, conn: Connection
) -> None:
    @app.schedule("100ms", args={"n": 1})
    @app.task(unique="{n}")
    async def beat(n: int) -> None: ...

    @app.schedule("100ms")
    @app.task
    async def other() -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        # Before the worker starts: its first tick would have the key.
        assert (await beat.using(connection=connection, delay="1h").aenqueue(1)).inserted
        async with Worker(app):
            await auntil(
                lambda: (
                    conn.execute("select count(*) > 5 from stepwell.ticks where name = 'other'").fetchone() == (True,)
                )
            )
            await connection.commit()
            await auntil(lambda: conn.execute("select 1 from stepwell.ticks where skipped = 'unique'").fetchone())


async def test_a_triggered_run_raises_if_its_key_is_taken(app: App, conn: Connection) -> None:
    @app.schedule("1h", args={"n": 1})
    @app.task(unique="{n}")
    async def beat(n: int) -> None: ...

    async with Worker(app):
        await auntil(lambda: conn.execute("select 1 from stepwell.schedule").fetchone())
    job = await beat.using(delay="1h").aenqueue(1)
    with pytest.raises(JobExists) as caught:
        await app.schedule_named("beat").atrigger()
    assert caught.value.job == job
    assert ticks(conn) == []
    await job.acancel()
    run = await app.schedule_named("beat").atrigger()
    assert keys(conn) == [(run.id, True)]


async def test_a_job_that_cancels_itself_frees_the_key(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h"))
    async def work(n: int) -> None:
        raise Cancel("no longer wanted")

    await work.aenqueue(1)
    async with Worker(app):
        await auntil(lambda: live(conn) == 0)
    assert keys(conn) == []


# Groups.


async def test_a_call_whose_key_is_taken_is_no_member_of_its_group(app: App, conn: Connection) -> None:
    @app.task(unique="{user}")
    async def sync(user: str) -> None: ...

    taken = await sync.aenqueue("ada")
    group = await app.agroup([sync.call(user) for user in ("ada", "bob", "bob", "eve")])
    assert (await group.aprogress()).total == 2
    assert live(conn) == 3
    assert len(keys(conn)) == 3
    assert not (await sync.aenqueue("bob")).inserted
    async with Worker(app):
        assert (await group.aresult(timeout="20s")).succeeded == 2
        await taken.aresult(timeout="20s")
    assert keys(conn) == []


async def test_a_call_in_a_group_replaces_or_reschedules_the_job_that_has_its_key(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{user}", on_conflict="replace"))
    async def draft(user: str, text: str) -> str:
        return text

    @app.task(unique=Unique("{doc}", on_conflict="reschedule"), limit=Limit(1, key="r-{version}"))
    async def render(doc: str, version: int) -> int:
        return version

    first = await draft.aenqueue("ada", "one")
    page = await render.using(delay="1h").aenqueue("a", 1)
    group = await app.agroup(
        [
            draft.call("ada", "two"),
            draft.using(priority=7).call("ada", "three"),
            draft.call("bob", "four"),
            draft.call("bob", "five"),
            render.using(delay="10ms").call("a", 2),
        ]
    )
    assert (await group.aprogress()).total == 1
    assert live(conn) == 3
    info = await first.ainfo()
    assert info is not None
    assert info.priority == 7
    async with Worker(app):
        assert await first.aresult(timeout="20s") == "three"
        assert await page.aresult(timeout="20s") == 2
        assert (await group.aresult(timeout="20s")).succeeded == 1
        assert [member.result for member in await group.aresults()] == ["five"]
    assert keys(conn) == []


async def test_a_member_or_callback_that_is_to_raise_on_a_conflict_leaves_no_group(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{user}", on_conflict="raise"))
    async def sync(user: str) -> None: ...

    @app.task(unique="once-{user}")
    async def tell(summary: GroupSummary, user: str = "ada") -> None: ...

    await sync.aenqueue("ada")
    with pytest.raises(JobExists):
        await app.agroup([sync.call("bob"), sync.call("ada")])
    await app.agroup([sync.call("bob")], then=tell)
    with pytest.raises(JobExists):
        await app.agroup([sync.call("eve")], then=tell)
    assert live(conn) == 3
    assert conn.execute("select count(*) from stepwell.job_group").fetchone() == (1,)


async def test_nobody_replaces_a_child_or_the_callback_of_a_group(app: App, conn: Connection) -> None:
    given = Unique("a", scope="database")

    @app.task(queue="later")
    async def child(value: int) -> int:
        return value

    @app.task
    async def parent(ctx: Context) -> int:
        return await ctx.spawn(child.using(unique=given), 1)

    @app.task
    async def publish(summary: GroupSummary) -> int:
        return summary.total

    @app.task(unique=Unique("{key}", scope="database", on_conflict="replace"))
    async def other(key: str) -> str:
        return key

    group = await app.agroup([], then=publish.using(unique=replace(given, key="b"), delay="1h"))
    async with Worker(app, queues=["default"]):
        waiting = await parent.aenqueue()
        await auntil(lambda: conn.execute("select from stepwell.job where task = 'child'").rowcount == 1)
        assert not (await other.aenqueue("a")).inserted
        assert not (await other.aenqueue("b")).inserted
        await group.then.arun_now()
        assert await group.then.aresult(timeout="20s") == 0
        async with Worker(app, queues=["later"]):
            assert await waiting.aresult(timeout="20s") == 1
