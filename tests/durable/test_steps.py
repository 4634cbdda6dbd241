"""What a durable function has done it never does again."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest
from waiting import auntil

from stepwell import App, BadValue, Context, JobFailed, Retry, StepFailed, SyncContext, Worker
from stepwell.values.outcome import Snooze

SOON = Retry(max_attempts=5, initial="10ms", jitter=0)


@dataclass
class Payment:
    order: int
    at: datetime


async def test_a_saved_step_is_not_run_again_and_keeps_its_type(app: App) -> None:
    ran: list[str] = []

    async def pay(order: int) -> Payment:
        ran.append("pay")
        return Payment(order, datetime(2030, 1, 1, tzinfo=UTC))

    def count(order: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        ran.append("count")
        return order + 1

    @app.task(retry=SOON)
    async def buy(ctx: Context, order: int) -> tuple[int, int]:
        paid = await ctx.step(pay, order)
        number = await ctx.step(count, paid.order)
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return paid.at.year, number

    async with Worker(app):
        job = await buy.aenqueue(7)
        assert await job.aresult(timeout="10s") == (2030, 8)
        info = await job.ainfo()
    assert ran == ["pay", "count"]
    assert info is not None
    assert info.attempt == 3
    assert [(step.key, step.kind, step.value) for step in info.steps] == [
        ("pay", "step", {"order": 7, "at": "2030-01-01T00:00:00Z"}),
        ("count", "step", 8),
    ]
    assert all(step.seconds is not None and not step.pending for step in info.steps)


async def test_a_value_is_what_it_will_be_when_it_is_read_again(app: App) -> None:
    def pair() -> Any:
        return (1, 2)

    @app.task
    async def work(ctx: Context) -> bool:
        return await ctx.step(pair) == [1, 2]

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s")


async def test_a_value_that_its_annotation_would_not_read_again_is_read_so_at_once_or_refused(app: App) -> None:
    def whole() -> float:
        return 3

    def wrong() -> int:
        return cast("int", "7")

    def none() -> int:
        return cast("int", None)

    @app.task
    async def work(ctx: Context) -> list[str]:
        said = [repr(await ctx.step(whole))]
        for fn in (wrong, none):
            try:
                await ctx.step(fn)
            except (BadValue, StepFailed) as error:
                said.append(str(error))
        await ctx.sleep("1.1s")
        return said

    async with Worker(app):
        whole_, *refused = await (await work.aenqueue()).aresult(timeout="10s")
    assert whole_ == "3.0"
    assert ["does not fit the return annotation" in one for one in refused] == [True, True]


async def test_a_step_that_fails_in_a_task_group_is_tried_again_with_the_job(app: App) -> None:
    ran: list[str] = []

    async def flaky() -> None:
        ran.append("flaky")
        if len(ran) == 1:
            raise ConnectionError("once")

    async def other() -> None:
        ran.append("other")

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(flaky))
            # It comes to its step when the other has failed, and the group has not been told yet.
            group.create_task(ctx.step(other))

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="10s")
    assert ran.count("flaky") == 2


async def test_a_stored_none_is_not_nothing(app: App) -> None:
    ran: list[int] = []

    def nothing() -> None:
        ran.append(1)

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        await ctx.step(nothing)
        if ctx.attempt == 1:
            raise ValueError

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="10s")
    assert ran == [1]


async def test_steps_of_one_name_are_numbered(app: App) -> None:
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def work(ctx: Context) -> list[int]:
        values = [await ctx.step(double, n) for n in range(3)]
        values.append(await ctx.step(partial(double, 5)))
        values.append(await ctx.step(lambda: 11, key="own"))
        return values

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == [0, 2, 4, 10, 11]
        info = await job.ainfo()
    assert info is not None
    assert [step.key for step in info.steps] == ["double", "double#2", "double#3", "double#4", "own"]


async def test_a_step_is_tried_again_by_its_own_policy(app: App) -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("busy")
        return "done"

    @app.task
    async def work(ctx: Context) -> tuple[str, int]:
        return await ctx.step(flaky, retry=Retry(max_attempts=3, initial="5ms")), ctx.attempt

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == ("done", 1)
    assert len(tries) == 3


@pytest.mark.counts_runs
async def test_a_long_pause_between_tries_gives_the_slot_back(app: App) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("busy")
        return len(tries)

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step(flaky, retry=Retry(max_attempts=3, initial="1.2s", jitter=0))

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == 2
        info = await job.ainfo()
    assert info is not None
    assert (info.epoch, info.attempt) == (2, 1)
    assert [(step.key, step.kind, step.error) for step in info.steps] == [
        ("flaky~1", "retry", "ConnectionError: busy"),
        ("flaky", "step", None),
    ]


async def test_an_error_that_is_left_after_the_tries_is_saved_and_fails_the_job_for_good(app: App) -> None:
    tries: list[int] = []

    async def hopeless() -> None:
        tries.append(1)
        raise ConnectionError("gone")

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        await ctx.step(hopeless, retry=Retry(max_attempts=2, initial="1ms"))

    async with Worker(app):
        job = await work.aenqueue()
        with pytest.raises(JobFailed, match="ConnectionError: gone"):
            await job.aresult(timeout="10s")
        info = await job.ainfo()
        assert info is not None
        assert info.steps[0].error == "ConnectionError: gone"
        assert (len(tries), info.attempt) == (2, 1)
        # Trying the job again takes that step anew.
        assert await job.aretry()
        with pytest.raises(JobFailed):
            await job.aresult(timeout="10s")
    assert len(tries) == 4


async def test_an_error_that_was_caught_is_caught_again_in_each_run(app: App) -> None:
    tries: list[int] = []
    seen: list[tuple[str, str]] = []

    class Refused(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"refused with {code}")
            self.code = code

    def ask() -> None:
        tries.append(1)
        raise Refused(7)

    def otherwise() -> str:
        return "otherwise"

    @app.task(retry=SOON)
    async def work(ctx: Context) -> tuple[str, str]:
        try:
            await ctx.step(ask)
        except Exception as error:
            said = str(error)
            if isinstance(error, StepFailed):
                seen.append((error.key, error.type.rpartition(".")[2]))
            if ctx.attempt == 1:
                await ctx.step(otherwise)
                raise ConnectionError("another") from None
            return said, await ctx.step(otherwise)
        raise AssertionError

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == ("refused with 7", "otherwise")
    assert tries == [1]
    assert set(seen) == {("ask", "Refused")}


async def test_an_error_that_leaves_the_handler_in_the_end_is_tried_again_with_the_job(app: App) -> None:
    tries: list[int] = []

    def ask() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("busy")
        return len(tries)

    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        try:
            return await ctx.step(ask)
        except ConnectionError:
            await ctx.step(list, key="tidied up")
            raise

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 2


@pytest.mark.counts_runs
async def test_a_saved_error_is_of_its_own_class_where_that_is_known(app: App) -> None:
    seen: list[str] = []

    def ask() -> None:
        raise ConnectionResetError(104, "reset by peer")

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        try:
            await ctx.step(ask)
        except ConnectionError as error:
            seen.append(str(error))
        await ctx.step(list, key="more")
        if ctx.attempt == 1:
            raise ValueError

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="10s")
    assert seen == ["[Errno 104] reset by peer"] * 2


async def test_an_error_that_nobody_caught_is_not_saved_and_the_step_is_tried_with_the_job(app: App) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("busy")
        return len(tries)

    def other() -> int:
        return 1

    @app.task(retry=SOON)
    async def work(ctx: Context) -> list[int]:
        return list(await ctx.gather(ctx.step(flaky), ctx.step(other)))

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == [3, 1]


async def test_a_step_has_a_timeout_of_its_own(app: App) -> None:
    async def slow() -> None:
        await asyncio.sleep(30)

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        try:
            await ctx.step(slow, timeout="50ms")
        except TimeoutError as error:
            return str(error)
        raise AssertionError

    async with Worker(app):
        said = await (await work.aenqueue()).aresult(timeout="10s")
    assert said == "step 'slow' ran longer than its timeout of 50ms"


async def test_what_a_steps_function_holds_is_let_go_with_it(app: App) -> None:
    class Heavy:
        pass

    held: list[weakref.ref[Heavy]] = []

    def use(heavy: Heavy) -> int:
        return 1

    @app.task
    async def work(ctx: Context) -> None:
        def closure() -> bool:
            return bool(heavy)

        heavy = Heavy()
        held.append(weakref.ref(heavy))
        await ctx.step(closure)
        await ctx.step(partial(use, heavy))

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="10s")
        await auntil(lambda: gc.collect() >= 0 and held[0]() is None)


async def test_a_plain_step_that_runs_out_of_items_fails(app: App) -> None:
    def pick() -> int:
        return next(iter([]))

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        return await ctx.step(pick)

    @app.task(retry=Retry(max_attempts=1))
    def plain(ctx: SyncContext) -> int:
        return ctx.gather(lambda: ctx.step(pick))[0]

    chain = app.chain("chain", pick, retry=Retry(max_attempts=1))
    async with Worker(app):
        for task in (work, plain, chain):
            with pytest.raises(JobFailed, match="StopIteration"):
                await (await task.aenqueue()).aresult(timeout="10s")


async def test_a_caught_error_that_cannot_be_raised_again_is_told_of(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ExceptionGroup("several", [ValueError("one")])

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        try:
            await ctx.step(fail)
        except (ExceptionGroup, StepFailed) as error:
            return str(await ctx.step(str, type(error).__name__))
        return "nothing"

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == "ExceptionGroup"
    assert "step fail of " in caplog.text
    assert "a replay raises StepFailed instead" in caplog.text


async def test_a_timeout_is_tried_again_whatever_errors_are(app: App) -> None:
    tried: list[str] = []

    async def slow() -> int:
        tried.append("slow")
        if tried.count("slow") == 1:
            await asyncio.sleep(60)
        # Without a turn of the loop, which a busy machine may take longer for than the timeout.
        return tried.count("slow")

    async def late() -> None:
        tried.append("late")
        raise TimeoutError("somebody else's")

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        policy = Retry(max_attempts=3, initial="1ms", retry_on=(ConnectionError,))
        with pytest.raises(TimeoutError, match="somebody else's"):
            await ctx.step(late, timeout="1m", retry=policy)
        return await ctx.step(slow, timeout="10ms", retry=policy)

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 2
    assert tried.count("late") == 1


async def test_a_backoff_function_that_fails_does_not_fail_its_step(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def broken(attempt: int, error: BaseException) -> float:
        raise ZeroDivisionError

    async def stumble() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError
        return len(tried)

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step(stumble, retry=Retry(backoff=broken))

    monkeypatch.setattr("stepwell.values.retry._FAILED_PAUSE", 0.001)
    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 2
    assert "the backoff function of step 'stumble' of work failed" in caplog.text


async def test_what_a_step_says_by_an_exception_is_not_an_error_of_the_step(app: App) -> None:
    runs: list[int] = []

    def later() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise Snooze("10ms")

    @app.task
    async def work(ctx: Context) -> int:
        await ctx.step(later, retry=SOON)
        return ctx.attempt

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 1
    assert len(runs) == 2


async def test_chance_and_time_are_the_same_in_each_run(app: App) -> None:
    seen: list[tuple[float, UUID, UUID, datetime]] = []

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        seen.append((ctx.random(), ctx.uuid(), ctx.uuid(), await ctx.now()))
        if ctx.attempt < 3:
            raise ValueError

    async with Worker(app):
        job = await work.aenqueue()
        await job.aresult(timeout="10s")
        other = await work.aenqueue()
        await other.aresult(timeout="10s")
    assert len(set(seen)) == 2
    drawn, one, two, at = seen[0]
    assert 0 <= drawn < 1
    assert one != two
    assert one.version == 4
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60


@pytest.mark.counts_runs
async def test_a_job_of_ten_steps_takes_twelve_round_trips_and_a_replay_none_for_its_steps(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepwell.worker import worker_connection

    sent: list[str] = []
    fetch = worker_connection.WorkerConnection.fetch

    async def counted(self: Any, query: Any) -> Any:
        rows = await fetch(self, query)
        # A claim that finds nothing is the worker looking, not the job.
        if any(name in query.text for name in ("save_steps", "finish", "fail(")) or ("claim" in query.text and rows):
            sent.append(query.text)
        return rows

    def nothing(n: int) -> int:
        return n

    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        total = 0
        for n in range(10):
            total += await ctx.step(nothing, n)
        if ctx.attempt == 1:
            raise ValueError
        return total

    monkeypatch.setattr(worker_connection.WorkerConnection, "fetch", counted)
    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 45
    # claim, ten steps, fail; claim, finish.
    assert len(sent) == 12 + 2


async def test_errors_whose_classes_want_more_arguments_are_caught_again_too(app: App) -> None:
    @app.task(retry=SOON)
    async def work(ctx: Context) -> list[str]:
        said: list[str] = []
        for n, text in enumerate(("{", "[1,")):
            try:
                await ctx.step(json.loads, text, key=f"parse {n}")
            except json.JSONDecodeError as error:
                said.append(str(error))
        await ctx.step(list, key="more")
        if ctx.attempt == 1:
            raise ValueError
        return said

    async with Worker(app):
        said = await (await work.aenqueue()).aresult(timeout="10s")
    assert [text.partition(":")[0] for text in said] == [
        "Expecting property name enclosed in double quotes",
        "Expecting value",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"undo": "refund"}, "undo is 'refund': give a function"),
        ({"undo": divmod}, "takes the step's value, or nothing"),
        ({"retry": 3}, "retry is 3: give a Retry"),
    ],
)
async def test_a_step_that_cannot_be_undone_or_tried_again_is_refused_before_it_is_run(
    app: App, options: Any, said: str
) -> None:
    ran: list[int] = []

    async def step() -> None:
        ran.append(1)

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        await ctx.step(step, **options)

    async with Worker(app):
        with pytest.raises(JobFailed, match=said):
            await (await work.aenqueue()).aresult(timeout="10s")
    assert ran == []


async def test_a_keyword_argument_of_the_function_fails_the_job_and_says_how_to_give_it(app: App) -> None:
    async def charge(n: int) -> int:
        return n

    @app.task
    async def wrong(ctx: Context) -> None:
        await cast("Any", ctx.step)(charge, n=1)

    @app.task
    def misspelt(ctx: SyncContext) -> None:
        cast("Any", ctx.step)(charge, 1, retries=3)

    async with Worker(app):
        with pytest.raises(JobFailed, match=r"no option 'n': give .* by position, or bind them: .*partial\(charge, n="):
            await (await wrong.aenqueue()).aresult(timeout="20s")
        with pytest.raises(JobFailed, match="no option 'retries': did you mean 'retry'"):
            await (await misspelt.aenqueue()).aresult(timeout="20s")
