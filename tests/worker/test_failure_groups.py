"""What workers report of errors: the function of the user's own code that raised them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest
from process_tasks import register
from waiting import auntil, until

from stepwell import App, Context, Fail, FailureInfo, Retry, Worker
from stepwell.errors.text import user_frame
from stepwell.testing import adrain

HERE = __name__


class Trouble(Exception):
    pass


def inner(order: int) -> None:
    if order:
        raise Trouble(f"order {order}")


def parse(text: str) -> Any:
    return json.loads(text)


@pytest.fixture
def once() -> dict[str, Any]:
    return {"retry": Retry(max_attempts=1)}


async def group_of(app: App, task: str) -> FailureInfo:
    [group] = await app.afailures(task=task)
    return group


async def test_coroutines_threads_and_steps_name_the_innermost_function_of_the_user(
    app: App, once: dict[str, Any]
) -> None:
    @app.task(**once)
    async def coroutine(order: int) -> None:
        inner(order)

    @app.task(**once)
    def thread(order: int) -> None:
        inner(order)

    @app.task(**once)
    async def parses(text: str) -> None:
        parse(text)  # it is raised in the standard library

    async def pay(order: int) -> None:
        inner(order)

    @app.task(**once)
    async def durable(ctx: Context, order: int) -> None:
        await ctx.step(pay, order)

    @app.task(**once)
    async def together(order: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay(order))

    for order in (1, 2):
        await coroutine.aenqueue(order)
    await thread.aenqueue(1)
    await parses.aenqueue("{")
    await durable.aenqueue(1)
    await together.aenqueue(1)
    await adrain(app)
    found = await group_of(app, coroutine.name)
    assert (found.type, found.frame, found.count) == (f"{HERE}.Trouble", f"{HERE}:inner", 2)
    assert (await group_of(app, thread.name)).frame == f"{HERE}:inner"
    assert (await group_of(app, parses.name)).frame == f"{HERE}:parse"
    assert (await group_of(app, durable.name)).frame == f"{HERE}:inner"
    grouped = await group_of(app, together.name)
    assert (grouped.type, grouped.frame) == ("ExceptionGroup", f"{HERE}:inner")


async def test_each_attempt_counts_and_a_resolved_group_is_opened_again(app: App) -> None:
    @app.task(retry=Retry(max_attempts=3, initial=0))
    async def flaky(order: int) -> None:
        inner(order)

    job = await flaky.aenqueue(1)
    await adrain(app)
    group = await group_of(app, "flaky")
    assert (group.count, group.job_id, group.message) == (3, job.id, "order 1")
    assert await app.aset_failure(group, "resolved")
    assert not await app.aset_failure(group.id, "resolved")
    assert await app.afailures() == []
    assert await app.aretry_jobs(failure=group.id) == 1
    await adrain(app)
    again = await group_of(app, "flaky")
    assert (again.state, again.reopened, again.id) == ("open", 1, group.id)
    assert [found.id for found in await app.ajobs(failure=str(group.id))] == [job.id]


async def test_args_and_timeouts_have_no_frame(app: App, once: dict[str, Any]) -> None:
    @app.task(**once, timeout="50ms")
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task(**once)
    async def typed(order: int) -> None: ...

    await slow.aenqueue()
    with psycopg.connect(app.dsn) as conn:
        conn.execute('select stepwell.enqueue(%s, \'{"order": "x"}\')', [typed.name])
    await adrain(app)
    assert ((await group_of(app, slow.name)).type, (await group_of(app, slow.name)).frame) == ("TimeoutError", None)
    assert ((await group_of(app, typed.name)).type, (await group_of(app, typed.name)).frame) == (
        "stepwell.errors.BadArgs",
        None,
    )


async def test_the_leader_adds_up_what_was_counted(app: App) -> None:
    @app.task
    async def broken() -> None:
        raise Fail("no")

    await broken.aenqueue()

    def tallies() -> int:
        with psycopg.connect(app.dsn) as conn:
            row = conn.execute("select sum(count) from stepwell.failure_group").fetchone()
        return 0 if row is None or row[0] is None else int(row[0])

    await adrain(app)
    assert (await group_of(app, broken.name)).count == 1

    async with Worker(app):
        await asyncio.to_thread(until, lambda: tallies() == 1)


def test_code_that_was_not_loaded_from_a_module_has_a_name_too() -> None:
    found: list[str | None] = []
    for given in ({}, {"__name__": 7}, {"__name__": "__main__"}):
        space: dict[str, Any] = dict(given)
        exec(compile("def shout():\n raise ValueError", "/srv/release-7/shop/main.py", "exec"), space)
        with pytest.raises(ValueError) as raised:
            space["shout"]()
        found.append(user_frame(raised.value, raised.tb.tb_next))
    assert found == ["main:shout"] * 3
    assert user_frame(ValueError(), None) is None


@pytest.mark.slow
async def test_processes_name_the_function_and_crashes_none(app: App) -> None:
    tasks = register(app)
    await tasks["divide"].aenqueue(0)
    await tasks["die"].aenqueue()
    await adrain(app)
    divided, died = await group_of(app, "divide"), await group_of(app, "die")
    assert (divided.type, divided.frame) == ("ZeroDivisionError", "process_tasks:divide")
    assert (died.type, died.frame) == ("stepwell.errors.ProcessCrashed", None)


async def test_the_leader_counts_all_that_is_pending_and_not_one_batch_a_minute(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(
        "insert into stepwell.failure_tally (fingerprint, at, count, task, type, message)"
        " select stepwell.fingerprint('work', 'Boom', null), stepwell.now(), 1, 'work', 'Boom', ''"
        " from generate_series(1, 11000)"
    )

    @app.task
    async def work() -> None: ...

    async with Worker(app):
        # Within the minute that was between two batches.
        await auntil(lambda: conn.execute("select from stepwell.failure_tally limit 1").fetchone() is None, 30)
    assert conn.execute("select count from stepwell.failure_group").fetchone() == (11000,)
