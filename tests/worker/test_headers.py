"""Headers that plugins attach to jobs: they reach runs, children, retries, forks and runs of schedules."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg
import pytest

from stepwell import App, Context, JobFailed, Limit, Plugin, Retry, Worker
from stepwell.plugins import Enqueue, Run
from stepwell.testing import adrain


class Tracer(Plugin):
    """Gives each enqueue a number, and notes with which number each job runs."""

    def __init__(self, *, writes: bool = True) -> None:
        self.writes = writes
        self.count = 0
        self.enqueues: list[Enqueue] = []
        self.runs: list[tuple[str, str | None]] = []

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
        if self.writes:
            self.count += 1
            enqueue.headers["trace"] = str(self.count)
        self.enqueues.append(enqueue)
        return nullcontext()

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        self.runs.append((run.task, run.headers.get("trace")))
        await call()


def tasks_of(app: App) -> dict[str, Any]:
    @app.task(retry=Retry(max_attempts=2, backoff="fixed", initial=0))
    async def fails(n: int) -> None:
        raise RuntimeError(n)

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task
    async def parent(ctx: Context, n: int) -> int:
        return await ctx.spawn(child, n) + await ctx.spawn(child, n)

    @app.task(limit=Limit(2, key="{n}"))
    async def limited(n: int) -> int:
        return n

    @app.task(unique="{n}", on_conflict="replace")
    async def unique(n: int) -> int:
        return n

    return {"fails": fails, "child": child, "parent": parent, "limited": limited, "unique": unique}


class Tenant(Plugin):
    """Gives each enqueue of a request, but not those of runs, its tenant."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str | None]] = []

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
        if enqueue.parent_id is None:
            enqueue.headers["tenant"] = "ada"
        return nullcontext()

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        self.runs.append((run.task, run.headers.get("tenant")))
        await call()


async def test_children_keep_the_headers_of_their_parent_beside_those_that_they_are_given(dsn: str) -> None:
    tracer, tenant = Tracer(), Tenant()
    app = App(dsn, plugins=[tracer, tenant])
    tasks = tasks_of(app)
    async with app:
        await tasks["parent"].aenqueue(2)
        await adrain(app)
    assert {run for run in tenant.runs if run[0] == "child"} == {("child", "ada")}
    assert {trace for task, trace in tracer.runs if task == "child"} <= {"2", "3"}, "the parent has 1"


async def test_headers_reach_runs_attempts_children_and_retries(dsn: str) -> None:
    tracer = Tracer()
    app = App(dsn, plugins=[tracer])
    tasks = tasks_of(app)
    async with app:
        failing = await tasks["fails"].using(timeout="1m").aenqueue(1)
        await tasks["parent"].aenqueue(2)
        await adrain(app)
        assert tracer.runs[:1] == [("fails", "1")]
        assert tracer.runs.count(("fails", "1")) == 2, "both attempts"
        assert ("parent", "2") in tracer.runs
        assert sorted(run for run in tracer.runs if run[0] == "child") in (
            [("child", "3"), ("child", "3")],
            [("child", "3"), ("child", "4")],
        )
        assert {enqueue.parent_id is not None for enqueue in tracer.enqueues[2:]} == {True}
        tracer.runs.clear()
        await failing.aretry()
        await adrain(app)
        assert ("fails", "1") in tracer.runs
        info = await failing.ainfo()
        assert info.policy == {"timeout": 60.0}, "headers are no part of the policy that people read"
        assert info.metadata is None


async def test_a_child_has_the_headers_of_its_parent_if_nobody_gives_it_others(dsn: str) -> None:
    tracer = Tracer()
    app = App(dsn, plugins=[tracer])
    tasks = tasks_of(app)
    async with app:
        await tasks["parent"].aenqueue(2)
        tracer.writes = False
        await adrain(app)
    assert [run for run in tracer.runs if run[0] == "child"] == [("child", "1"), ("child", "1")]


async def test_headers_stay_with_limits_unique_keys_groups_and_many(dsn: str) -> None:
    tracer = Tracer()
    app = App(dsn, plugins=[tracer])
    tasks = tasks_of(app)
    async with app:
        await tasks["limited"].aenqueue(1)
        await tasks["unique"].aenqueue(1)
        await tasks["unique"].aenqueue(1)  # replaces the first, and its headers
        await tasks["child"].aenqueue_many([{"n": n} for n in range(2)])
        await app.agroup([tasks["limited"].call(7)])
        await adrain(app)
    assert sorted(tracer.runs) == [
        ("child", "4"),
        ("child", "4"),
        ("limited", "1"),
        ("limited", "5"),
        ("unique", "3"),
    ]
    assert [enqueue.count for enqueue in tracer.enqueues] == [1, 1, 1, 2, 1]


async def test_a_plain_unique_key_is_kept_beside_headers(dsn: str) -> None:
    app = App(dsn, plugins=[Tracer()])

    @app.task(unique="{n}")
    async def once(n: int) -> None: ...

    @app.task(retry=Retry(max_attempts=1))
    async def parent(ctx: Context) -> None:
        await ctx.spawn(once, 1)

    async with app:
        first = await once.using(delay="1h").aenqueue(1)
        again = [await once.aenqueue(1), *await once.aenqueue_many([{"n": 1}])]
        assert [(job.id, job.inserted) for job in again] == [(first.id, False)] * 2
        job = await parent.aenqueue()
        async with Worker(app):
            with pytest.raises(JobFailed, match="JobExists"):
                await job.aresult(timeout="20s")


async def test_runs_of_a_schedule_have_the_headers_it_was_made_with(dsn: str) -> None:
    tracer = Tracer()
    app = App(dsn, plugins=[tracer])
    tasks = tasks_of(app)
    async with app, Worker(app):
        await app.aschedule_task(tasks["child"], "1d", args={"n": 1})
        assert tracer.enqueues[-1].scheduled
        job = await app.schedule_named("child").atrigger()
        assert job is not None
        await job.aresult(timeout="20s")
    assert tracer.runs == [("child", "1")]


@pytest.mark.parametrize("bad", ["x" * 9000, "a\0b", 7])
async def test_headers_that_cannot_be_stored_are_left_out(
    dsn: str, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture, bad: Any
) -> None:
    class Bad(Plugin):
        def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
            enqueue.headers["bad"] = bad
            return nullcontext()

    app = App(dsn, plugins=[Bad()])
    tasks = tasks_of(app)
    with caplog.at_level(logging.ERROR, "stepwell"):
        async with app:
            await tasks["child"].aenqueue(1)
    assert "wrap_enqueue of plugin" in caplog.text
    assert conn.execute("select policy, headers from stepwell.jobs").fetchall() == [(None, None)]


def test_headers_are_a_column_of_the_view(dsn: str, conn: psycopg.Connection[Any]) -> None:
    app = App(dsn, plugins=[Tracer()])
    tasks_of(app)["child"].enqueue(1)
    app.close()
    assert conn.execute("select policy, headers from stepwell.jobs").fetchall() == [(None, {"trace": "1"})]
