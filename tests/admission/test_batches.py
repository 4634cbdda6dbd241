"""Batch handlers: jobs that share a call, each with its own fence, outcome and retries."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import pytest
from waiting import auntil

from stepwell import (
    App,
    BadArgs,
    Cancel,
    ConfigError,
    Context,
    Fail,
    JobCancelled,
    JobFailed,
    JobHandle,
    JobLogFilter,
    Limit,
    Retry,
    RetryIn,
    Snooze,
    SyncContext,
    Worker,
)
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import HandlerAbandoned, JobStarted
from stepwell.testing import adrain

ONCE = Retry(max_attempts=1)
NOW = Retry(max_attempts=3, initial="1ms", cap="1ms")


@dataclass
class Vector:
    at: tuple[float, float]


async def test_jobs_share_a_call_and_each_ends_with_its_own_result(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=50, batch_wait="50ms")
    async def embed(numbers: list[int]) -> list[Vector]:
        calls.append(numbers[:])
        return [Vector((n, n)) for n in numbers]

    async with Worker(app, concurrency=60):
        jobs = await app.aenqueue_many([embed.call(n) for n in range(100)])
        assert [await job.aresult(timeout="20s") for job in jobs] == [Vector((n, n)) for n in range(100)]
    assert max(map(len, calls)) == 50
    assert sorted(n for call in calls for n in call) == list(range(100))
    info = await jobs[7].ainfo()
    assert info is not None
    assert (info.state, info.attempt, info.epoch, info.args) == ("succeeded", 1, 1, {"numbers": 7})


async def test_a_batch_takes_one_slot_so_one_slot_fills_a_batch(app: App) -> None:
    sizes: list[int] = []

    @app.task(batch=100, batch_wait="60s")
    async def noted(items: list[int]) -> None:
        sizes.append(len(items))

    await noted.aenqueue_many([{"items": n} for n in range(400)])
    async with Worker(app, concurrency=1) as worker:
        await auntil(lambda: worker.runs_ended == 400, within=50)
    assert sizes == [100] * 4


async def test_a_full_batch_starts_at_once_and_another_after_its_wait(app: App) -> None:
    began: list[tuple[int, float]] = []

    async def noted(items: list[int]) -> None:
        began.append((len(items), time.monotonic()))

    patient = app.task(name="patient", batch=3, batch_wait="60s")(noted)
    soon = app.task(name="soon", batch=3, batch_wait="400ms")(noted)
    async with Worker(app):
        await patient.aenqueue_many([{"items": n} for n in range(3)])
        await auntil(lambda: len(began) == 1, within=50)
        at = time.monotonic()
        await soon.aenqueue(3)
        await auntil(lambda: len(began) == 2)
    assert [size for size, _ in began] == [3, 1]
    assert began[1][1] - at >= 0.4


async def test_a_batch_whose_time_is_up_gathers_on_until_it_has_a_slot(app: App) -> None:
    go = asyncio.Event()
    calls: list[list[str]] = []

    @app.task(batch=10, batch_wait=0)
    async def noted(texts: list[str]) -> None:
        calls.append(texts[:])
        if texts[0] == "first":
            await go.wait()

    async with Worker(app, concurrency=1) as worker:
        first = await noted.aenqueue("first")
        await auntil(lambda: len(calls) == 1)
        others = await noted.aenqueue_many([{"texts": str(n)} for n in range(4)])
        go.set()
        for job in (first, *others):
            await job.aresult(timeout="20s")
        await auntil(lambda: worker.runs_ended == 5)
    assert calls == [["first"], ["0", "1", "2", "3"]]


async def test_a_plain_function_takes_a_batch_in_a_thread(app: App) -> None:
    threads: set[int] = set()

    @app.task(batch=10)
    def double(numbers: list[int]) -> list[int]:
        threads.add(threading.get_ident())
        return [2 * n for n in numbers]

    jobs = await double.aenqueue_many([{"numbers": n} for n in range(10)])
    assert await adrain(app) == 10
    assert [await job.aresult(timeout="60s") for job in jobs] == [2 * n for n in range(10)]
    assert threading.get_ident() not in threads
    assert double([1, 2]) == [2, 4]


async def test_calling_the_task_calls_its_function_with_a_list(app: App) -> None:
    @app.task(batch=10)
    async def lengths(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    async def by_name(*, texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    # A type checker sees the list as positional.
    named: Any = app.task(batch=10)(cast("Callable[[list[str]], list[int]]", by_name))
    by_position: Any = lengths
    assert await lengths(["a", "bb"]) == [1, 2]
    assert await named(["a", "bb"]) == [1, 2]
    jobs: list[JobHandle[int]] = [await named.aenqueue(texts="abc"), await by_position.aenqueue(texts="abc")]
    await adrain(app)
    assert [await job.aresult(timeout="60s") for job in jobs] == [3, 3]


async def test_an_exception_in_the_list_is_as_if_its_job_had_raised_it(app: App) -> None:
    seen: list[str] = []

    async def check(text: str) -> int:
        if text == "broken":
            raise ValueError("broken text")
        return len(text)

    @app.task(batch=10, retry=NOW)
    async def checked(texts: list[str]) -> list[int | BaseException]:
        seen.extend(texts)
        own: dict[str, BaseException] = {
            "fail": Fail("for good"),
            "later": RetryIn("1h", "in an hour"),
            "snooze": Snooze("1h"),
            "cancel": Cancel("not wanted"),
        }
        found = await asyncio.gather(*(check(text) for text in texts), return_exceptions=True)
        return [own.get(text, one) for text, one in zip(texts, found, strict=True)]

    texts = ["fine", "broken", "fail", "later", "snooze", "cancel"]
    jobs = dict(zip(texts, await app.aenqueue_many([checked.call(text) for text in texts]), strict=True))
    await adrain(app)
    # The broken one alone is tried again, until its attempts are used up.
    await auntil(lambda: seen.count("broken") == 3 or None)
    infos = {text: await job.ainfo() for text, job in jobs.items()}
    found = {text: (info.state, info.attempt) for text, info in infos.items() if info}
    assert found == {
        "fine": ("succeeded", 1),
        "broken": ("failed", 3),
        "fail": ("failed", 1),
        "later": ("scheduled", 1),
        "snooze": ("scheduled", 0),
        "cancel": ("cancelled", 1),
    }
    broken = infos["broken"]
    assert broken is not None
    trace = broken.failures[0].traceback or ""
    assert "in check" in trace
    assert "batch_executor" not in trace
    with pytest.raises(JobFailed, match="broken text"):
        await jobs["broken"].aresult(timeout="60s")
    with pytest.raises(JobCancelled):
        await jobs["cancel"].aresult(timeout="60s")


async def test_an_exception_that_is_raised_fails_all_each_by_its_own_policy(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=10, retry=ONCE)
    async def broken(numbers: list[int]) -> list[int]:
        calls.append(numbers[:])
        raise ValueError("all of them")

    jobs = await app.aenqueue_many(
        [
            broken.using(retry=NOW).call(0),
            broken.call(1),
            broken.using(max_attempts=2, retry=NOW).call(2),
            broken.using(keep_failed="1d").call(3),
        ]
    )
    async with Worker(app):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.aresult(timeout="20s")
    assert calls[0] == [0, 1, 2, 3]
    infos = [info for job in jobs if (info := await job.ainfo())]
    assert [info.attempt for info in infos] == [3, 1, 2, 1]
    for info in infos:
        assert info.failures[0].message == "all of them"
        assert "in broken" in (info.failures[0].traceback or "")
        assert "execute_batch" not in (info.failures[0].traceback or "")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([1], "got a list of 3 and returned one of 1"),
        ([1, 2, 3, 4], "got a list of 3 and returned one of 4"),
        ((1, 2, 3), "returned a tuple: with batch= it returns a list"),
        ({"a": 1}, "returned a dict"),
        (None, "returned None: with batch= it returns a list, with the result of each job, or is annotated"),
    ],
)
async def test_a_result_that_is_no_list_of_the_same_length_fails_all(app: App, returned: Any, said: str) -> None:
    @app.task(batch=3)
    async def wrong(numbers: list[int]) -> list[int]:
        return returned

    jobs = await wrong.aenqueue_many([{"numbers": n} for n in range(3)])
    await adrain(app)
    for job in jobs:
        info = await job.ainfo()
        assert info is not None
        assert (info.state, info.attempt, info.failures[0].reason) == ("failed", 1, "bad_result")
        assert said in info.failures[0].message


async def test_a_result_that_cannot_be_stored_fails_its_job_alone(app: App) -> None:
    @app.task(batch=3)
    async def odd(numbers: list[int]) -> list[Any]:
        return [object() if n == 1 else n for n in numbers]

    jobs = await odd.aenqueue_many([{"numbers": n} for n in range(3)])
    await adrain(app)
    assert [info.state for job in jobs if (info := await job.ainfo())] == ["succeeded", "failed", "succeeded"]


async def test_a_job_whose_args_do_not_decode_fails_alone(app: App, conn: psycopg.Connection[Any]) -> None:
    calls: list[list[int]] = []

    @app.task(batch=5, retry=NOW)
    async def noted(numbers: list[int]) -> list[int]:
        calls.append(numbers[:])
        return numbers

    with pytest.raises(BadArgs, match="argument 'numbers'"):
        await noted.aenqueue("one")  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadArgs, match="Expected `int`, got `array`"):
        await noted.aenqueue([1])  # pyright: ignore[reportArgumentType]
    good = await noted.aenqueue_many([{"numbers": 1}, {"numbers": 2}])
    row = conn.execute("select stepwell.enqueue('noted', '{\"numbers\": \"x\"}')").fetchone()
    assert row is not None
    await adrain(app)
    assert calls == [[1, 2]]
    assert [await job.aresult(timeout="60s") for job in good] == [1, 2]
    bad = conn.execute(
        "select state::text, attempt from stepwell.jobs where task = 'noted' and error is not null"
    ).fetchall()
    assert bad == [("failed", 1)]


async def test_batches_do_not_mix_queues_timeouts_or_limits(app: App) -> None:
    calls: list[list[str]] = []

    @app.task(batch=20, batch_wait="100ms")
    async def noted(texts: list[str]) -> None:
        calls.append(sorted(texts))

    @app.task(batch=20, limit=Limit(20, key="tenant-{texts[0]}"))
    async def limited(texts: list[str]) -> None:
        calls.append(sorted(texts))

    await app.aenqueue_many(
        [
            *(noted.call(f"default {n}") for n in range(3)),
            *(noted.using(queue="other").call(f"other {n}") for n in range(3)),
            *(noted.using(timeout="7s").call(f"timeout {n}") for n in range(3)),
            *(noted.using(retry=NOW).call(f"default retry {n}") for n in range(3)),
            *(limited.call(f"{tenant}{n}") for tenant in "ab" for n in range(3)),
        ]
    )
    async with Worker(app, queues=["default", "other"], concurrency=20) as worker:
        await auntil(lambda: worker.runs_ended == 18)
    assert sorted(calls) == [
        ["a0", "a1", "a2"],
        ["b0", "b1", "b2"],
        [f"default {n}" for n in range(3)] + [f"default retry {n}" for n in range(3)],
        [f"other {n}" for n in range(3)],
        [f"timeout {n}" for n in range(3)],
    ]


async def test_a_batch_of_a_limited_task_is_never_above_the_limit(app: App) -> None:
    sizes: list[int] = []

    @app.task(batch=20, batch_wait=0, limit=Limit(4))
    async def limited(numbers: list[int]) -> None:
        sizes.append(len(numbers))
        await asyncio.sleep(0.01)

    jobs = await limited.aenqueue_many([{"numbers": n} for n in range(20)])
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert sum(sizes) == 20
    assert max(sizes) <= 4


async def test_the_timeout_is_of_the_call_and_fails_all(app: App) -> None:
    @app.task(batch=3, timeout="100ms", retry=ONCE)
    async def slow(numbers: list[int]) -> list[int]:
        await asyncio.sleep(60)
        return numbers

    jobs = await slow.aenqueue_many([{"numbers": n} for n in range(3)])
    await adrain(app)
    for job in jobs:
        info = await job.ainfo()
        assert info is not None
        assert (info.state, info.attempt, info.failures[0].reason) == ("failed", 1, "timeout")
        assert "in slow" in (info.failures[0].traceback or "")


async def test_the_timeout_of_a_policy_is_that_of_its_batch(app: App) -> None:
    @app.task(batch=3, retry=ONCE)
    async def slow(numbers: list[int]) -> list[int]:
        await asyncio.sleep(60 if 0 in numbers else 0)
        return numbers

    call = slow.using(timeout="100ms").call
    jobs = await app.aenqueue_many([call(0), call(1), slow.call(2)])
    await adrain(app)
    assert [info.state for job in jobs if (info := await job.ainfo())] == ["failed", "failed", "succeeded"]


async def test_a_call_that_does_not_stop_is_abandoned_and_keeps_its_slot(app: App) -> None:
    go = threading.Event()
    abandoned: list[Telemetry] = []

    @app.task(batch=2, batch_wait="5s", timeout="50ms", timeout_grace="50ms", retry=ONCE)
    def stuck(numbers: list[int]) -> list[int]:
        go.wait(60)
        return numbers

    @app.task
    async def other() -> None: ...

    worker = Worker(app, concurrency=1)
    worker.subscribe(lambda event: abandoned.append(event) if isinstance(event, HandlerAbandoned) else None)
    async with worker:
        jobs = await stuck.aenqueue_many([{"numbers": n} for n in range(2)])
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.aresult(timeout="20s")
        await auntil(lambda: len(abandoned) == 2)
        waits = await other.aenqueue()
        with pytest.raises(TimeoutError):
            await waits.aresult(timeout="100ms")
        go.set()
        await waits.aresult(timeout="20s")


async def test_one_job_of_a_running_batch_that_is_cancelled_ends_cancelled_and_the_others_do_not(app: App) -> None:
    go = asyncio.Event()
    stopped = False
    began = asyncio.Event()

    @app.task(batch=3)
    async def held(numbers: list[int]) -> list[int]:
        nonlocal stopped
        began.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            stopped = True
            raise
        return numbers

    jobs = await held.aenqueue_many([{"numbers": n} for n in range(3)])
    worker = Worker(app)
    asked = asyncio.Event()
    worker.subscribe(lambda event: asked.set() if type(event).__name__ == "JobStopAsked" else None)
    async with worker:
        await began.wait()
        await jobs[1].acancel()
        await asked.wait()
        go.set()
        assert await jobs[0].aresult(timeout="20s") == 0
        assert await jobs[2].aresult(timeout="20s") == 2
        with pytest.raises(JobCancelled):
            await jobs[1].aresult(timeout="20s")
    assert not stopped


async def test_a_batch_all_of_whose_jobs_are_cancelled_is_stopped(app: App) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @app.task(batch=3)
    async def held(numbers: list[int]) -> list[int]:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.set()
            raise
        return numbers

    jobs = await held.aenqueue_many([{"numbers": n} for n in range(3)])
    async with Worker(app):
        await began.wait()
        for job in jobs:
            await job.acancel()
        for job in jobs:
            with pytest.raises(JobCancelled):
                await job.aresult(timeout="20s")
    assert stopped.is_set()


async def test_a_job_that_is_cancelled_while_its_batch_gathers_is_left_out(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=3, batch_wait="60s")
    async def noted(numbers: list[int]) -> None:
        calls.append(numbers[:])

    jobs = await noted.aenqueue_many([{"numbers": n} for n in range(2)])
    async with Worker(app):
        await _until_state(jobs[0], "running")
        await jobs[0].acancel()
        with pytest.raises(JobCancelled):
            await jobs[0].aresult(timeout="20s")
        await noted.aenqueue_many([{"numbers": n} for n in range(2, 4)])
        await jobs[1].aresult(timeout="20s")
    assert calls == [[1, 2, 3]]


async def test_a_stopping_worker_hands_back_what_still_gathers(app: App) -> None:
    @app.task(batch=3, batch_wait="60s")
    async def noted(numbers: list[int]) -> None: ...

    job = await noted.aenqueue(1)
    async with Worker(app):
        await _until_state(job, "running")
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 20
    info = await job.ainfo()
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)


async def test_a_running_batch_is_handed_back_when_the_worker_cannot_wait_for_it(app: App) -> None:
    began = asyncio.Event()

    @app.task(batch=3)
    async def held(numbers: list[int]) -> list[int]:
        began.set()
        await asyncio.sleep(60)
        return numbers

    jobs = await held.aenqueue_many([{"numbers": n} for n in range(3)])
    async with Worker(app, grace=0):
        await began.wait()
    infos = [info for job in jobs if (info := await job.ainfo())]
    assert [(info.state, info.attempt) for info in infos] == [("ready", 0)] * 3


async def test_a_paused_queue_gets_back_what_still_gathers(app: App) -> None:
    @app.task(batch=3, batch_wait="60s")
    async def noted(numbers: list[int]) -> None: ...

    job = await noted.aenqueue(1)
    async with Worker(app):
        await _until_state(job, "running")
        await app.apause("default")
        await _until_state(job, "ready")
        await app.aresume("default")
        await _until_state(job, "running")


@pytest.mark.slow
async def test_a_batch_that_gathers_for_long_is_not_handed_back_as_stalled(app: App) -> None:
    @app.task(batch=3, batch_wait="2500ms")
    async def noted(numbers: list[int]) -> None: ...

    job = await noted.aenqueue(1)
    async with Worker(app):
        await job.aresult(timeout="20s")
    info = await job.ainfo()
    assert info is not None
    assert info.epoch == 1


@pytest.mark.slow
async def test_a_batch_whose_worker_lost_its_lease_cannot_finish_any_job(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    calls: list[list[int]] = []

    @app.task(batch=3, retry=NOW)
    async def held(numbers: list[int]) -> list[int]:
        calls.append(sorted(numbers))
        if len(calls) == 1:
            began.set()
            try:
                await go.wait()
            except asyncio.CancelledError:
                await go.wait()
            return [-1 for _ in numbers]
        return numbers

    jobs = await held.aenqueue_many([{"numbers": n} for n in range(3)])
    async with Worker(app, lease="3s", renew="1s") as worker:
        await began.wait()
        conn.execute("update stepwell.worker set lease_until = 'epoch' where id = %s", (worker.id,))
        while len(calls) < 2:  # noqa: ASYNC110 rescued by the worker's own upkeep
            await asyncio.sleep(0.01)
        go.set()
        assert [await job.aresult(timeout="20s") for job in jobs] == [0, 1, 2]
    assert sorted(n for call in calls[1:] for n in call) == [0, 1, 2]


async def test_batches_hold_no_more_bytes_than_the_worker_may(app: App) -> None:
    held: list[int] = []

    @app.task(batch=40, batch_wait="100ms")
    async def sized(texts: list[str]) -> None:
        held.append(sum(map(len, texts)))
        await asyncio.sleep(0.05)

    jobs = await sized.aenqueue_many([{"texts": "x" * 50_000} for _ in range(40)])
    async with Worker(app, max_held_size=500_000):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert sum(held) == 40 * 50_000
    assert max(held) <= 500_000


async def test_plain_jobs_and_batches_share_the_slots_of_a_pool(app: App) -> None:
    @app.task
    async def one(n: int) -> int:
        return n

    @app.task(batch=7, batch_wait="10ms")
    async def many(numbers: list[int]) -> list[int]:
        return numbers

    calls = [task.call(n) for n in range(300) for task in (one, many)]
    jobs = await app.aenqueue_many(calls)
    async with Worker(app, concurrency=3) as worker:
        await auntil(lambda: worker.runs_ended == 600)
        assert [await job.aresult(timeout="20s") for job in jobs] == [n for n in range(300) for _ in range(2)]


async def test_each_job_of_a_batch_tells_of_itself_and_logs_name_the_task(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(JobLogFilter())
    log = logging.getLogger("test.batches")
    started: list[str] = []

    @app.task(batch=3)
    async def noted(numbers: list[int]) -> None:
        log.warning("in the batch")

    jobs = await noted.aenqueue_many([{"numbers": n} for n in range(3)])
    worker = Worker(app)
    worker.subscribe(lambda event: started.append(event.job_id or "") if isinstance(event, JobStarted) else None)
    async with worker:
        for job in jobs:
            await job.aresult(timeout="20s")
    assert sorted(started) == sorted(str(job.id) for job in jobs)
    [record] = [record for record in caplog.records if record.name == "test.batches"]
    fields = [getattr(record, name) for name in ("job_id", "task", "queue", "attempt")]
    assert fields == [None, "noted", "default", None]


async def test_a_durable_job_awaits_jobs_of_a_batch(app: App) -> None:
    @app.task(batch=3)
    async def double(numbers: list[int]) -> list[int]:
        return [2 * n for n in numbers]

    @app.task
    async def parent(ctx: Context) -> int:
        children = [await ctx.spawn(double, n) for n in range(3)]
        return sum(children)

    job = await parent.aenqueue()
    await adrain(app)
    assert await job.aresult(timeout="60s") == 6


async def test_drain_does_not_wait_for_batches_to_fill(app: App) -> None:
    @app.task(batch=3, batch_wait="60s")
    async def noted(numbers: list[int]) -> list[int]:
        return numbers

    jobs = await noted.aenqueue_many([{"numbers": n} for n in range(4)])
    assert await adrain(app, timeout="20s") == 4
    assert [await job.aresult(timeout="60s") for job in jobs] == list(range(4))


async def test_the_list_belongs_to_the_function(app: App) -> None:
    @app.task(batch=3)
    async def emptied(numbers: list[int]) -> list[int]:
        results = list(numbers)
        numbers.clear()
        return results

    jobs = await emptied.aenqueue_many([{"numbers": n} for n in range(3)])
    await adrain(app)
    assert [await job.aresult(timeout="60s") for job in jobs] == [0, 1, 2]


def _takes_none() -> list[int]:
    return []


def _takes_two(a: list[int], b: list[int]) -> list[int]:
    return a + b


def _takes_one(a: int) -> list[int]:
    return [a]


def _takes_any(a: Any) -> list[int]:
    return a


def _has_default(a: list[int] = []) -> list[int]:  # noqa: B006
    return a


def _takes_context(ctx: SyncContext) -> list[int]:
    return []


def _returns_one(a: list[int]) -> int:
    return a[0]


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (_takes_none, r"takes \(\): with batch= it takes one list"),
        (_takes_two, "with batch= it takes one list"),
        (_takes_one, r"annotate 'a' with list\[...\]"),
        (_takes_any, r"annotate 'a' with list\[...\]"),
        (_has_default, "without a default"),
        (_takes_context, "takes no context"),
        (_returns_one, "returns a list, with the result of each job, or None"),
    ],
)
def test_a_function_that_takes_no_batch_is_refused_where_it_is_defined(
    app: App, fn: Callable[..., Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        app.task(batch=10)(fn)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 1001}, "between 1 and 1000"),
        ({"batch": True}, "batch is True"),
        ({"batch": 10, "batch_wait": "2m"}, "batch_wait is 2m"),
        ({"batch": 10, "batch_wait": -1}, "batch_wait"),
        ({"batch_wait": "1s"}, "there is no batch="),
        ({"batch": 10, "process": True}, "batch= and process= exclude each other"),
        ({"batch": 10, "transaction": True}, "batch= and transaction= exclude each other"),
    ],
)
def test_options_that_do_not_go_with_a_batch_are_refused(app: App, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):

        @app.task(**options)
        def batch(numbers: list[int]) -> list[int]:  # pyright: ignore[reportUnusedFunction]
            return numbers


def test_a_task_says_what_a_job_is_enqueued_with(app: App) -> None:
    @app.task(batch=10, batch_wait="1s")
    async def embed(texts: list[str]) -> list[float | Exception]:
        return [0.0 for _ in texts]

    assert repr(embed) == "<Task embed(texts: str)>"
    assert (embed.batch, embed.batch_wait) == (10, 1.0)
    assert embed.codec.arguments == ["texts"]


async def _until_state(job: JobHandle[Any], state: str) -> None:
    async with asyncio.timeout(20):
        while (info := await job.ainfo()) is None or info.state != state:  # noqa: ASYNC110 it polls the database
            await asyncio.sleep(0.01)
