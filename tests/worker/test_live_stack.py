"""The live stack of a running handler: its worker answers, also when the handler blocks the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from process_tasks import register
from waiting import auntil

from stepwell import App, Context, JobHandle, JobNotFound, Worker
from stepwell.jobs.stack import LiveStack, astack_of, stack_of
from stepwell.postgres.threads import begin_in_thread

SECRET = "hunter2"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer than a person would wait."""
    monkeypatch.setattr("stepwell.jobs.stack.PATIENCE", 60.0)


async def stack(app: App, job: JobHandle[Any]) -> str:
    found = await astack_of(job.id, app.database)
    assert found.found, found.text
    return found.text


@pytest.mark.usefixtures("patient")
async def test_it_shows_where_handlers_wait_on_the_loop_and_in_threads(app: App) -> None:
    begun, go, thread_begun, thread_go = asyncio.Event(), asyncio.Event(), threading.Event(), threading.Event()

    @app.task
    async def waits(ctx: Context, secret: str) -> None:
        await outer(secret)

    async def outer(secret: str) -> None:
        begun.set()
        await go.wait()

    @app.task
    def in_a_thread(secret: str) -> None:
        thread_begun.set()
        thread_go.wait()

    @app.task
    async def steps(ctx: Context) -> None:
        await asyncio.gather(ctx.step(in_step, "a", key="a"), ctx.step(in_step, "b", key="b"))

    def in_step(name: str) -> None:
        thread_go.wait()

    @app.task(batch=2, batch_wait="60s")
    async def together(items: list[int]) -> None:
        await go.wait()

    async with Worker(app, concurrency=10):
        jobs = [await waits.aenqueue(SECRET), await in_a_thread.aenqueue(SECRET), await steps.aenqueue()]
        batch = [await together.aenqueue(1), await together.aenqueue(2)]
        await begun.wait()
        await auntil(thread_begun.is_set)
        found = await stack(app, jobs[0])
        assert found.startswith("on the event loop, waiting")
        assert found.index("in waits") < found.index("in outer") < found.index("await go.wait()")
        assert "runner.py" not in found

        async def blocked() -> str | None:
            # The thread may not have come further than the line before.
            text = await stack(app, jobs[1])
            return text if "thread_go.wait()" in text else None

        threaded = str(await auntil(blocked))
        assert threaded.startswith("in a thread")
        assert "in in_a_thread" in threaded
        assert "run_forever" not in threaded

        async def both() -> str | None:
            text = await stack(app, jobs[2])
            return text if text.count("in in_step") == 2 else None

        assert "in steps" in str(await auntil(both))

        async def shared() -> str | None:
            text = (await astack_of(batch[0].id, app.database)).text
            return text if "its call is for 2 jobs" in text else None

        assert "in together" in str(await auntil(shared))
        assert SECRET not in found + threaded
        go.set()
        thread_go.set()
        for job in (*jobs, *batch):
            await job.aresult(timeout=60)
        ended = await astack_of(jobs[0].id, app.database)
        assert (ended.found, ended.text) == (False, "it has ended: only a running job has a stack")
    with pytest.raises(JobNotFound):
        await astack_of(uuid4(), app.database)
    later = await waits.using(delay="1h").aenqueue("x")
    assert (await astack_of(later.id, app.database)).text == "it is scheduled: only a running job has a stack"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Task.get_context is new in Python 3.12")
@pytest.mark.usefixtures("patient")
async def test_it_shows_the_tasks_that_a_handler_has_started(app: App) -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def fans_out() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part(), name="part one")

    async def part() -> None:
        begun.set()
        await go.wait()

    async with Worker(app):
        job = await fans_out.aenqueue()
        await begun.wait()
        found = await stack(app, job)
        assert "in the asyncio task 'part one', waiting" in found
        go.set()
        await job.aresult(timeout=60)


@pytest.mark.usefixtures("patient")
async def test_a_handler_that_blocks_the_event_loop_is_shown(app: App) -> None:
    answers: list[LiveStack] = []
    running: list[UUID] = []
    begun = threading.Event()

    def ask() -> None:
        begun.wait()
        answers.append(stack_of(running[0], app.database))

    @app.task
    async def blocks(ctx: Context) -> None:
        running.append(UUID(ctx.id))
        inner(lambda: bool(answers))

    def inner(holds: Callable[[], bool]) -> None:
        begun.set()
        pause = threading.Event()
        for _ in range(3000):
            if holds():
                return
            pause.wait(0.02)

    async with Worker(app):
        # Before the job: once its handler blocks the loop, no task could start the thread.
        asker = begin_in_thread(ask)
        await (await blocks.aenqueue()).aresult(timeout=60)
        await asker
    [answer] = answers
    assert answer.found, answer.text
    assert answer.text.startswith("on the event loop, running at this moment")
    assert "in blocks" in answer.text
    assert answer.text.rindex("in inner") > answer.text.index("in blocks")


@pytest.mark.slow
async def test_a_handler_in_a_process_is_named_by_its_pid(app: App, tmp_path: Path) -> None:
    task = register(app)["stubborn"]
    async with Worker(app):
        job = await task.aenqueue(str(tmp_path / "place"))

        async def in_process() -> str | None:
            found = await astack_of(job.id, app.database)
            return found.text if "py-spy dump --pid" in found.text else None

        await auntil(in_process)
        await job.acancel()


@pytest.mark.usefixtures("patient")
async def test_notifications_of_strangers_and_answers_of_others_change_nothing(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    go = asyncio.Event()

    @app.task
    async def waits() -> None:
        await go.wait()

    async with Worker(app) as worker:
        job = await waits.aenqueue()
        await auntil(lambda: conn.execute("select true from stepwell.job where state = 'running'").fetchone())
        for payload in ("", "x" * 7000, str(uuid4()), str(worker.id)):
            conn.execute("select pg_notify('stepwell_stack', %s)", (payload,))
        assert "in waits" in await stack(app, job)
        assert conn.execute("select count(*) from stepwell.stack_request").fetchone() == (0,)
        # Requests that nobody reads are bounded, and make room after a minute.
        for _ in range(100):
            conn.execute(
                "insert into stepwell.stack_request values (stepwell.uuid7(), %s, %s, stepwell.now())",
                (job.id, uuid4()),
            )
        assert "a hundred others" in (await astack_of(job.id, app.database)).text
        conn.execute("update stepwell.stack_request set asked_at = stepwell.now() - interval '2 minutes'")
        assert "in waits" in await stack(app, job)
        request = str(uuid4())
        conn.execute(
            "insert into stepwell.stack_request values (%s, %s, %s, stepwell.now())", (request, job.id, uuid4())
        )
        conn.execute("select stepwell.answer_stacks(%s, %s::uuid[], '{lie}')", (worker.id, [request]))
        assert conn.execute("select stepwell.read_stack(%s, true)", (request,)).fetchone() == (None,)
        go.set()
        await job.aresult(timeout=60)


@pytest.mark.slow
async def test_a_worker_that_does_not_answer_is_named(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.aenqueue()
    worker = conn.execute(
        "select stepwell.register_worker('lost.example', 42, '0', '{default}', '{}', 1, 60)"
    ).fetchone()
    assert worker is not None
    conn.execute("update stepwell.job set state = 'running', worker_id = %s, epoch = 1", worker)
    found = await astack_of(job.id, app.database)
    assert not found.found
    assert "lost.example, pid 42) has not answered within 3 s" in found.text
    assert conn.execute("select count(*) from stepwell.stack_request").fetchone() == (0,)
