"""What the log says of jobs: how loud a failure is, and which job a record was made in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import App, Context, JobFailed, JobLogFilter, Retry, Step, SyncContext, Worker
from stepwell.durable.job_context import run_of

ONCE = Retry(max_attempts=1)


class Kept(logging.Handler):
    """Keeps records, as a handler with the filter on it gets them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(JobLogFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def events(self, name: str) -> list[logging.LogRecord]:
        return [record for record in self.records if getattr(record, "event", None) == name]

    def said(self, message: str) -> dict[str, Any]:
        """The job that a message was logged by."""
        [found] = [record for record in self.records if record.getMessage() == message]
        return {name: found.__dict__[name] for name in ("job_id", "task", "queue", "attempt")}


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, root, shop = Kept(), logging.getLogger(), logging.getLogger("shop")
    level = shop.level
    root.addHandler(handler)
    shop.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    shop.setLevel(level)


async def test_only_the_failure_that_ends_a_job_is_an_error_and_it_carries_the_exception(app: App, kept: Kept) -> None:
    class Broken(Exception):
        pass

    @app.task(retry=Retry(max_attempts=2, initial=0))
    async def fails() -> None:
        raise Broken("\ud800")

    @app.task(retry=ONCE)
    def in_thread() -> None:
        raise Broken("in a thread")

    @app.task(retry=ONCE, timeout="50ms")
    async def slow() -> None:
        await asyncio.sleep(60)

    async with Worker(app):
        for task in (fails, in_thread, slow):
            with pytest.raises(JobFailed):
                await (await task.aenqueue()).aresult("10s")
    retried, final, threaded, late = kept.events("AttemptFailed")
    assert (retried.levelname, retried.exc_info, retried.exc_text) == ("WARNING", None, None)
    assert final.levelname == threaded.levelname == late.levelname == "ERROR"
    for record, kind, function in (
        (final, Broken, "fails"),
        (threaded, Broken, "in_thread"),
        (late, TimeoutError, "slow"),
    ):
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], kind)
        # The traceback begins in the handler.
        assert record.exc_info[2] is not None
        assert record.exc_info[2].tb_frame.f_code.co_name == function
        assert "\n" not in record.getMessage()
        assert f"in {function}" in (record.exc_text or "")
        assert record.__dict__["task"] == function
    assert logging.Formatter().format(final).encode().endswith(b"Broken: \\ud800")


async def test_records_of_handlers_carry_the_job_wherever_they_are_made(app: App, kept: Kept) -> None:
    log = logging.getLogger("shop")
    left_behind = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def later() -> None:
        await left_behind.wait()
        log.info("after the end")

    @app.task(queue="mail", retry=Retry(initial=0))
    async def on_loop(ctx: Context) -> None:
        log.info(f"on the loop {ctx.attempt}")
        await asyncio.to_thread(log.info, f"aside {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("once")
        ctx.logger.warning("by ctx.logger")
        log.info("of another job", extra={"job_id": "another"})
        tasks.append(asyncio.create_task(later()))

    @app.task
    def in_thread() -> None:
        log.info("in a thread")

    @app.task
    def durable(ctx: SyncContext) -> None:
        ctx.step(log.info, "in a step", key="a")
        ctx.gather(lambda: ctx.step(log.info, "in a branch", key="b"))

    def first() -> int:
        log.info("first of a chain")
        return 1

    async def second(n: int) -> None:
        log.info("second of a chain")

    chain = app.chain("line", first, Step(second))
    async with Worker(app):
        jobs = {task.name: await task.aenqueue() for task in (on_loop, in_thread, durable, chain)}
        for job in jobs.values():
            await job.aresult("20s")
        left_behind.set()
        await asyncio.wait(tasks)
        log.info("of no job")

    def tag(name: str, attempt: int = 1, queue: str = "default") -> dict[str, Any]:
        return {"job_id": str(jobs[name].id), "task": name, "queue": queue, "attempt": attempt}

    for attempt in (1, 2):
        assert kept.said(f"on the loop {attempt}") == tag("on_loop", attempt, "mail")
        assert kept.said(f"aside {attempt}") == tag("on_loop", attempt, "mail")
    assert kept.said("by ctx.logger") == tag("on_loop", 2, "mail")
    assert kept.said("in a thread") == tag("in_thread")
    assert kept.said("in a step") == kept.said("in a branch") == tag("durable")
    assert kept.said("first of a chain") == kept.said("second of a chain") == tag("line")
    none = {"job_id": None, "task": None, "queue": None, "attempt": None}
    assert kept.said("after the end") == kept.said("of no job") == none
    assert kept.said("of another job") == {**none, "job_id": "another"}


@pytest.mark.counts_runs
async def test_asking_for_the_attempt_of_a_durable_job_leaves_its_journal_alone(app: App, kept: Kept) -> None:
    """A record may be made in any thread, at any moment: it must not be what makes the journal."""

    async def save() -> None: ...

    @app.task(retry=Retry(initial=0, max_attempts=3))
    async def work(ctx: Context) -> int:
        await asyncio.to_thread(logging.getLogger("shop").info, f"before the step {ctx.epoch}")
        assert not run_of(ctx).took_steps
        await ctx.step(save, key=str(ctx.epoch))
        if ctx.epoch < 3:
            raise ValueError("again")
        return ctx.attempt

    async with Worker(app):
        job = await work.aenqueue()
        attempt = await job.aresult("10s")
    assert kept.said("before the step 3")["attempt"] == attempt
