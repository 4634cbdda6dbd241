"""What no other try can mend fails for good: wrong calls of the API, and values that are nested too deep."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, BadArgs, Context, JobFailed, Retry, SyncContext, Worker
from stepwell.flows.machine import Done

# Deeper than any Python reads: 3.13 reads some 10,000 levels, 3.11 a thousand.
DEEP = "[" * 12000 + "]" * 12000
HOLDS_DEEP = f'{{"value":{DEEP}}}'


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def deep() -> Any:
    return nested(12000)


async def attempts(app: App, job_id: Any) -> list[tuple[str, int, str]]:
    async with app.database.aconnection() as connection:
        rows = await connection.execute(
            "select f.reason, f.attempt, j.state::text from stepwell.failures f join stepwell.jobs j on j.id = f.job_id"
            " where f.job_id = %s::uuid",
            (str(job_id),),
        )
        return [(row[0], row[1], row[2]) for row in await rows.fetchall()]


async def test_a_wrong_call_in_a_handler_fails_for_good(app: App) -> None:
    @app.task
    async def bad_sleep(ctx: Context) -> None:
        await ctx.sleep("5 parsecs")

    @app.task
    def bad_branch(ctx: SyncContext) -> None:
        ctx.gather(7)  # pyright: ignore[reportCallIssue, reportArgumentType]

    @app.task
    async def bad_step(ctx: Context) -> None:
        await ctx.step(bad_sleep)  # pyright: ignore[reportCallIssue, reportArgumentType]

    async def options() -> None:
        bad_sleep.using(priority="high")  # pyright: ignore[reportArgumentType]

    @app.task
    async def in_a_step(ctx: Context) -> None:
        await ctx.step(options, retry=Retry(max_attempts=5))

    @app.task
    async def in_a_group(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep("5 parsecs"))

    @app.task
    async def blocks() -> None:
        bad_sleep.enqueue()

    async with Worker(app):
        for task in (bad_sleep, bad_branch, bad_step, in_a_step, in_a_group, blocks):
            job = await task.aenqueue()
            with pytest.raises(JobFailed):
                await job.aresult("10s")
            assert await attempts(app, job.id) == [("error", 1, "failed")], task.name


async def test_values_nested_too_deep_fail_for_good(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def take(value: list[Any]) -> None:
        del value

    @app.task
    async def give() -> Any:
        return deep()

    @app.task
    async def save(ctx: Context) -> None:
        await ctx.step(deep)

    @app.task
    async def wait(ctx: Context) -> None:
        await ctx.wait_for("deep")

    @app.task
    async def look(ctx: Context) -> None:
        assert ctx.metadata

    machine = app.machine("deeply")

    @machine.state
    class First:
        value: Any = None

        async def run(self) -> Done[None]:
            return Done(None)

    with pytest.raises(BadArgs):
        await take.aenqueue(nested(12000))
    enqueue = "select stepwell.enqueue(%s::text, %s::json, metadata => %s::jsonb)"
    state = f'{{"state":{{"First":{HOLDS_DEEP}}}}}'
    given = [("take", HOLDS_DEEP, None), ("deeply", state, None), ("look", "{}", HOLDS_DEEP)]
    ids: list[Any] = [conn.execute(enqueue, one).fetchone() for one in given]
    ids = [row[0] for row in ids]
    ids += [(await task.aenqueue()).id for task in (give, save)]
    waits = await wait.aenqueue()
    conn.execute("select stepwell.emit('deep', null, %s::json)", (DEEP,))
    ids.append(waits.id)
    async with Worker(app):
        await auntil(lambda: conn.execute("select count(*) = 0 from stepwell.job").fetchone() == (True,))
    found = [await attempts(app, job_id) for job_id in ids]
    reasons = ["bad_args", "bad_args", "bad_result", "bad_result", "bad_result", "bad_result"]
    assert found == [[(reason, 1, "failed")] for reason in reasons]
    # Lists and pages show the others, too.
    conn.execute("select stepwell.enqueue('long', (%s)::json)", ('{"x": ' + "1" * 5000 + "}",))
    shown = {job.task: job for job in await app.ajobs()}
    assert shown["take"].args == {"": "(nested too deep to be shown: 24010 characters)"}
    assert shown["long"].args[""].startswith("(cannot be shown: Exceeds the limit (4300 digits)")
    assert shown["give"].args == {}


async def test_a_coroutine_that_is_returned_and_not_awaited_leads_to_await(app: App) -> None:
    async def late() -> int:
        return 1

    def sync() -> Any:
        return late()

    async def twice() -> Any:
        return late()

    app.task(sync)
    app.task(twice)
    app.chain("chained", sync)

    @app.task
    def plain_step(ctx: SyncContext) -> int:
        return ctx.step(sync)

    @app.task
    async def async_step(ctx: Context) -> int:
        return await ctx.step(twice)

    async with Worker(app):
        for task in app.tasks.values():
            job = await task.aenqueue()
            with pytest.raises(JobFailed, match="returned a coroutine: write 'await' before the call that made it"):
                await job.aresult("20s")
            assert [(reason, attempt) for reason, attempt, _ in await attempts(app, job.id)] == [("bad_result", 1)]
