"""Run logs: what handlers of tasks with logs=True log is kept with their jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from process_tasks import register
from waiting import auntil

from stepwell import App, ConfigError, Context, Retry, SyncContext, Worker
from stepwell.durable.log_filter import LoggedRun, log_as
from stepwell.durable.run_logs import MOST_LINES, LogBuffer, RunLogHandler
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.job import ClaimedJob
from stepwell.values.log_line import LogLine

shop = logging.getLogger("shop.orders")


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    level = shop.level
    shop.setLevel(logging.INFO)
    yield
    shop.setLevel(level)


def lines_of(conn: psycopg.Connection[Any], job_id: object, **options: Any) -> list[dict[str, Any]]:
    [found] = fetch(conn, queries.logs.job_logs(str(job_id), **options))
    assert found is not None
    return found["lines"]


def messages(conn: psycopg.Connection[Any], job_id: object) -> list[str]:
    return [line["message"] for line in lines_of(conn, job_id)]


@pytest.mark.counts_runs
async def test_the_records_of_a_handler_and_its_threads_are_kept_with_the_job(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task(logs=True, retry=Retry(max_attempts=2, initial=0))
    async def fails_once(ctx: Context) -> None:
        shop.info("attempt %s", ctx.attempt)
        shop.debug("too quiet for the logger")
        if ctx.attempt == 1:
            try:
                raise ValueError("<b>bad</b>\x00")
            except ValueError:
                shop.exception("caught")
            raise RuntimeError

        await ctx.step(in_thread)

    def in_thread() -> None:
        shop.warning("in a thread")

    @app.task(logs=True)
    def plain(ctx: SyncContext) -> None:
        shop.info("plain")

    @app.task
    async def without() -> None:
        shop.warning("not kept")

    async with Worker(app):
        jobs = [await fails_once.aenqueue(), await plain.aenqueue(), await without.aenqueue()]
        for job in jobs:
            await job.aresult(timeout=20)
    found = lines_of(conn, jobs[0].id)
    assert [(line["line"], line["attempt"], line["level"], line["message"].splitlines()[0]) for line in found] == [
        (1, 1, 20, "attempt 1"),
        (2, 1, 40, "caught"),
        (3, 2, 20, "attempt 2"),
        (4, 2, 30, "in a thread"),
    ]
    assert found[1]["message"].endswith("ValueError: <b>bad</b>\\x00")
    assert {line["logger"] for line in found} == {"shop.orders"}
    assert messages(conn, jobs[1].id) == ["plain"]
    assert messages(conn, jobs[2].id) == []
    assert [line["line"] for line in lines_of(conn, jobs[0].id, level=30)] == [2, 4]
    assert [line["line"] for line in lines_of(conn, jobs[0].id, before=3, limit=1)] == [2]
    assert [line["line"] for line in lines_of(conn, jobs[0].id, after=2)] == [3, 4]
    assert fetch(conn, queries.logs.job_logs(uuid4())) == [None]
    # The handler of the root logger leaves with the worker.
    assert not [handler for handler in logging.getLogger().handlers if isinstance(handler, RunLogHandler)]


async def test_two_workers_in_one_process_keep_each_record_once(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(logs=True)
    async def work(name: str) -> None:
        shop.info(name)

    async with Worker(app, queues=["a"]), Worker(app, queues=["b"]):
        jobs = [await work.using(queue=queue).aenqueue(queue) for queue in ("a", "b")]
        for job in jobs:
            await job.aresult(timeout=20)
    assert [messages(conn, job.id) for job in jobs] == [["a"], ["b"]]


async def test_a_worker_without_such_tasks_adds_no_handler(app: App) -> None:
    @app.task
    async def work() -> list[str]:
        return [type(handler).__name__ for handler in logging.getLogger().handlers]

    async with Worker(app):
        assert "RunLogHandler" not in await (await work.aenqueue()).aresult(timeout=20)


async def test_the_newest_lines_of_a_job_that_logs_much_are_kept(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(logs=True)
    async def chatty(count: int, size: int) -> None:
        for n in range(count):
            shop.info("%s %s", n, "x" * size)

    async with Worker(app):
        many, large = await chatty.aenqueue(5000, 1), await chatty.aenqueue(300, 9000)
        await many.aresult(timeout=20)
        await large.aresult(timeout=20)
    [found] = fetch(conn, queries.logs.job_logs(many.id, limit=1000))
    assert found is not None
    assert (found["first"], found["last"]) == (4001, 5000)
    assert found["lines"][-1]["message"] == "4999 x"
    kept = lines_of(conn, large.id, limit=1000)
    assert kept[-1]["line"] == 300
    assert sum(len(line["message"]) for line in kept) <= 256 * 1024
    assert 60 <= len(kept) < 300
    assert all(len(line["message"]) == 4000 and line["message"].endswith("…") for line in kept)


@pytest.mark.slow
async def test_lines_from_a_process_come_back(app: App, conn: psycopg.Connection[Any]) -> None:
    task = register(app)["logs_much"]
    async with Worker(app):
        job = await task.aenqueue()
        await job.aresult(timeout=30)
    lines = lines_of(conn, job.id)
    found = [line["message"] for line in lines]
    assert found[0] == "from a process"
    assert found[1].startswith("é" * 500)
    assert found[1].endswith("…")
    assert [(line["level"], line["logger"], line["message"]) for line in lines[2:]] == [
        (1000, "a\\x00\\ud800", "odd name and level"),
        (30, "None", "odd record"),
    ]


async def test_logs_go_with_the_history_of_their_job(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(logs=True, keep="1h")
    async def work() -> None:
        shop.info("kept")

    async with Worker(app):
        job = await work.aenqueue()
        gone = await work.using(keep=0).aenqueue()
        await job.aresult(timeout=20)
        await auntil(lambda: _ended(conn, gone.id))

    def prune(hours: float) -> int:
        conn.execute("delete from stepwell.clock")
        conn.execute("insert into stepwell.clock select clock_timestamp() + %s * interval '1 hour'", (hours,))
        return sum(fetch(conn, queries.upkeep.prune_logs(10)))

    assert prune(0) == 0, "it was looked at a moment ago"
    prune(0.5)
    assert messages(conn, job.id) == ["kept"]
    assert prune(0.6) == 0, "it is looked at when it expires"
    prune(1.2)
    counts = conn.execute(
        "select (select count(*) from stepwell.run_log), (select count(*) from stepwell.run_log_head)"
    )
    assert counts.fetchone() == (0, 0)


def _ended(conn: psycopg.Connection[Any], job_id: object) -> bool:
    return conn.execute("select not exists (select from stepwell.jobs where id = %s)", (job_id,)).fetchone() == (True,)


def test_a_full_buffer_drops_lines_with_a_count_and_wakes_its_reader_once() -> None:
    woken: list[bool] = []
    buffer = LogBuffer(lambda: woken.append(True), most=2000)
    for n in range(10):
        buffer.add(LogLine("a", 1, 0.0, 20, "shop", str(n)))
    assert woken == [True]
    batch = buffer.take()
    assert batch is not None
    assert [line.message for line in batch.lines[:-1]] == [str(n) for n in range(6)]
    assert batch.lines[-1].message.startswith("4 lines were dropped")
    assert buffer.take() is None
    buffer = LogBuffer(lambda: None)
    for n in range(MOST_LINES + 5):
        buffer.add(LogLine("a", 1, 0.0, 20, "shop", str(n)))
    batch = buffer.take()
    assert batch is not None
    assert (len(batch.lines), batch.lines[0].message, batch.cut) == (MOST_LINES, "5", {"a": 5})


def test_a_record_that_cannot_be_formatted_does_not_reach_the_code_that_logs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines: list[LogLine] = []
    root = logging.getLogger()
    others = root.handlers
    root.handlers = [RunLogHandler(lines.append)]
    job = ClaimedJob(str(uuid4()), "default", "work", "{}", None, 1, 1, 0, 0)

    async def run() -> None:
        log_as(LoggedRun(job, lines.append))
        shop.info("%d", "no number")
        shop.info("good")
        logging.getLogger("stepwell").warning("not of the handler")

    try:
        asyncio.run(run())
    finally:
        root.handlers = others
    assert [line.message for line in lines] == ["good"]
    assert "no number" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_without_handlers_still_sees_its_warnings(capsys: pytest.CaptureFixture[str], workers: int) -> None:
    root = logging.getLogger()
    others = root.handlers
    root.handlers = [RunLogHandler(list[LogLine]().append) for _ in range(workers)]
    try:
        shop.warning("look here")
        shop.info("not this")
    finally:
        root.handlers = others
    assert capsys.readouterr().err == "look here\n"


def test_logs_of_a_batch_are_refused_and_those_of_an_app_are_a_default(dsn: str) -> None:
    app = App(dsn, logs=True)

    @app.task
    def has() -> None: ...

    @app.task(logs=False)
    def has_not() -> None: ...

    @app.task(batch=10)
    def batch(items: list[int]) -> None: ...

    chain = app.chain("line", has.fn)
    assert [task.logs for task in (has, has_not, batch, chain)] == [True, False, False, True]
    assert (has.sources["logs"], has_not.sources["logs"]) == ("app", "task")
    with pytest.raises(ConfigError, match="batch= and logs= exclude each other"):
        app.task(batch=10, logs=True)(lambda_free)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ConfigError, match="logs is 'yes'"):
        App(dsn, logs="yes")  # pyright: ignore[reportArgumentType]


def lambda_free(items: list[int]) -> None: ...
