"""Watching a job: every caller sees how it goes on and how it ends, over one connection."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, assert_type

import psycopg
import pytest
from waiting import auntil, until

from stepwell import App, Changes, ConfigError, Context, JobChange, JobNotFound, JobProgress, Worker


def listeners(conn: psycopg.Connection[Any]) -> list[int]:
    cursor = conn.execute(
        "select l.pid from pg_locks l join pg_database d on d.oid = l.database "
        "where d.datname = current_database() and l.locktype = 'advisory' and l.mode = 'ShareLock'"
    )
    return [row[0] for row in cursor.fetchall()]


async def test_changes_show_state_progress_steps_and_result(app: App) -> None:
    shown, more = asyncio.Event(), asyncio.Event()

    async def fetch(n: int) -> int:
        return n + 1

    @app.task
    async def build(ctx: Context, n: int) -> int:
        ctx.progress(1, 3, "begun")
        await shown.wait()
        got = await ctx.step(fetch, n)
        await more.wait()
        await ctx.receive("go")
        return await ctx.step(fetch, got, key="again")

    job = await build.aenqueue(5)
    seen: list[JobChange[int]] = []
    async with Worker(app):
        changes = job.changes(timeout="30s")
        assert_type(changes, Changes[int])
        async for change in changes:
            seen.append(change)
            if change.progress == JobProgress(1, 3, "begun"):
                shown.set()
            if [step.key for step in change.steps] == ["fetch"]:
                more.set()
            if change.state == "waiting":
                await job.asend("go", {"by": "ada"})
    assert not any(change.ended for change in seen[:-1])
    last = seen[-1]
    assert (last.ended, last.state, last.result, last.error) == (True, "succeeded", 7, None)
    assert [change.state for change in seen if change.state == "running"]
    # Each step comes once with each of its states: the wait as pending, and ended.
    steps = [(step.key, step.pending, step.value) for change in seen for step in change.steps]
    assert steps[0] == ("fetch", False, 6)
    assert ("receive:go", True, None) in steps
    assert ("receive:go", False, {"by": "ada"}) in steps
    assert steps[-1] == ("again", False, 7)
    assert len({change.mark for change in seen}) == len(seen)


async def test_a_failed_job_ends_the_changes_and_does_not_raise(app: App) -> None:
    @app.task
    async def bad() -> None:
        raise ValueError("no")

    job = await bad.using(max_attempts=1).aenqueue()
    async with Worker(app):
        *_, last = [change async for change in job.changes(timeout="30s")]
    assert (last.state, last.error, last.result) == ("failed", "ValueError: no", None)
    # A job that has ended already has one change: its end.
    assert [change async for change in job.changes()] == [last]


async def test_an_unknown_job_and_a_late_one_raise(app: App) -> None:
    with pytest.raises(JobNotFound):
        async for _ in app.job("00000000-0000-7000-8000-000000000000").changes():
            pass

    @app.task
    async def never() -> None: ...

    job = await never.aenqueue()
    with pytest.raises(TimeoutError, match=r"has not ended within 300ms.*no worker is alive"):
        assert [change.state async for change in job.changes(timeout=0.3)] == []
    with pytest.raises(ConfigError, match="event loop"):
        next(iter(job.changes()))


@pytest.mark.slow
async def test_thousands_share_one_listener_and_none_misses_the_end_when_it_is_cut_off(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task(batch=100)
    async def note(numbers: list[int]) -> list[int]:
        return numbers

    jobs = await note.aenqueue_many([{"numbers": n} for n in range(2000)])
    begun = 0

    async def watch(number: int) -> list[Any]:
        nonlocal begun
        states: list[Any] = []
        async for change in jobs[number].changes(timeout="60s"):
            states.append((change.state, change.result))
            begun += len(states) == 1
        return states

    watching = [asyncio.create_task(watch(n)) for n in range(2000)]
    await auntil(lambda: begun == 2000)
    [listener] = listeners(conn)
    async with Worker(app):
        await auntil(lambda: any(task.done() for task in watching))
        conn.execute("select pg_terminate_backend(%s)", (listener,))
        ends = [states[-1] for states in await asyncio.gather(*watching)]
    assert ends == [("succeeded", n) for n in range(2000)]
    assert len(listeners(conn)) == 1


async def test_a_watcher_that_leaves_is_forgotten(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def never() -> None: ...

    job = await never.aenqueue()
    async for change in job.changes():
        assert change.state == "ready"
        break
    waiter = never.job_store.waiter
    await auntil(lambda: not waiter._watches)  # pyright: ignore[reportPrivateUsage]


async def test_a_second_watcher_does_not_start_from_what_the_first_one_knows(app: App) -> None:
    """Otherwise it would see the end of a job that was retried since, and leave."""

    @app.task
    async def note() -> None: ...

    job = await note.aenqueue()
    waiter = note.job_store.waiter
    assert await job.acancel()
    first = waiter.watch(str(job.id))
    assert (await waiter.await_for(waiter.next_state(first), 20)).state == "cancelled"
    assert await job.aretry()
    second = waiter.watch(str(job.id))
    assert (await waiter.await_for(waiter.next_state(second), 20)).state == "ready"


def test_plain_code_watches_too(dsn: str) -> None:
    with App(dsn) as app:

        @app.task
        def note(n: int) -> int:
            return n

        job = note.enqueue(3)
        seen: list[JobChange[int]] = []
        thread = threading.Thread(target=lambda: seen.extend(job.changes(timeout="30s")))
        thread.start()
        until(lambda: len(note.job_store.waiter._watches.marks()) == 1)  # pyright: ignore[reportPrivateUsage]
        job.cancel("enough")
        thread.join(20)
    assert (seen[-1].state, seen[-1].error) == ("cancelled", "enough")


async def test_closing_the_app_ends_who_watches(dsn: str) -> None:
    app = App(dsn)

    @app.task
    async def never() -> None: ...

    job = await never.aenqueue()

    async def watch() -> None:
        async for _ in job.changes():
            asyncio.get_running_loop().create_task(app.aclose())

    with pytest.raises(Exception, match="the app was closed"):
        await asyncio.wait_for(watch(), 20)
