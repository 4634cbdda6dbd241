"""Several queues in one worker: slots of their own, patterns, and the balance among those that share."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deaf import deaf
from process_tasks import register
from waiting import Heard, auntil

from stepwell import App, ConfigError, Context, JobCancelled, Worker
from stepwell.jobs.task import Task
from stepwell.telemetry.worker import QueueUnknown, WorkerStarted


class Gate:
    """A task whose jobs note that they began, and end when the gate is opened."""

    def __init__(self, app: App) -> None:
        self.opened = asyncio.Event()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

        @app.task
        async def hold(ctx: Context) -> None:
            self.running[ctx.queue] += 1
            self.most[ctx.queue] = max(self.most[ctx.queue], self.running[ctx.queue])
            await self.opened.wait()
            self.running[ctx.queue] -= 1

        self.task: Task[..., None] = hold

    async def put(self, **counts: int) -> None:
        """Jobs in these queues; in their names _ stands for a dot."""
        await self.task.aenqueue_many(
            [
                self.task.using(queue=queue.replace("_", ".")).call()
                for queue, count in counts.items()
                for _ in range(count)
            ]
        )

    async def runs(self, **counts: int) -> None:
        """Wait until so many run in each queue."""
        wanted = {queue.replace("_", "."): count for queue, count in counts.items()}
        await auntil(lambda: {queue: self.running[queue] for queue in wanted} == wanted)


class Notes:
    """A task whose jobs note their queues in the order in which they run, and take a while."""

    def __init__(self, app: App, seconds: float = 0.0) -> None:
        self.ran: list[str] = []

        @app.task
        async def note(ctx: Context) -> None:
            self.ran.append(ctx.queue)
            await asyncio.sleep(seconds)

        self.task: Task[..., None] = note

    async def put(self, *queues: str) -> None:
        await self.task.aenqueue_many([self.task.using(queue=queue).call() for queue in queues])


async def left(conn: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(conn.execute("select queue, count(*) from stepwell.job group by queue").fetchall())


@asynccontextmanager
async def quiet(app: App, **options: Any) -> AsyncGenerator[Worker]:
    """A worker that does not poll, and has nothing more to do at the beginning: only notifications move it."""
    async with Worker(app, poll="10m", **options) as worker:
        run = worker._current  # pyright: ignore[reportPrivateUsage]
        assert run is not None
        listener = run._listener  # pyright: ignore[reportPrivateUsage]
        await auntil(lambda: listener._heard.is_set())  # pyright: ignore[reportPrivateUsage]
        yield worker


async def test_slots_of_its_own_are_kept_for_a_queue_and_are_all_it_gets(app: App) -> None:
    gate = Gate(app)
    await gate.put(bulk=30)
    async with Worker(app, queues={"mail": 2, "reports": 1, "*": 5}):
        await gate.runs(bulk=5)
        await gate.put(mail=10, reports=10, other=10)
        await gate.runs(mail=2, reports=1, bulk=5, other=0)
        gate.opened.set()
        await auntil(lambda: gate.running.total() == 0)
    assert (gate.most["mail"], gate.most["reports"], gate.most["bulk"]) == (2, 1, 5)
    assert gate.most["other"] <= 5


async def test_a_job_runs_in_the_slots_of_the_most_specific_name(app: App) -> None:
    gate = Gate(app)
    async with Worker(app, queues={"*": 4, "mail.*": 3, "mail.eu.*": 2, "mail.us": 1}):
        await gate.put(mail_eu_1=9, mail_us=9, mail_us_1=9, mail=9)
        await gate.runs(mail_eu_1=2, mail_us=1, mail_us_1=3, mail=4)
        gate.opened.set()
        await auntil(lambda: gate.running.total() == 0)
    assert gate.most == {"mail.eu.1": 2, "mail.us": 1, "mail.us.1": 3, "mail": 4}


async def test_only_what_a_pattern_stands_for_is_claimed(app: App, conn: psycopg.Connection[Any]) -> None:
    notes = Notes(app)
    await notes.put("mail.a", "mail", "mail.b", "default", "other")
    async with Worker(app, queues=["mail.*", "default"]):
        await auntil(lambda: len(notes.ran) == 3)
        await notes.put("mail.c", "mailbox")
        await auntil(lambda: len(notes.ran) == 4)
    assert sorted(notes.ran) == ["default", "mail.a", "mail.b", "mail.c"]
    assert await left(conn) == {"mail": 1, "mailbox": 1, "other": 1}


@pytest.mark.parametrize("queues", [["*"], {"mail": 1, "*": 5}, ["tenant.*"], {"t*": 1}])
async def test_a_new_queue_is_claimed_from_at_once_without_polling(
    app: App, queues: list[str] | dict[str, int]
) -> None:
    notes = Notes(app)
    async with quiet(app, queues=queues):
        for number in range(5):
            await notes.put(f"tenant.{number}")
            await auntil(lambda number=number: len(notes.ran) > number)
        await notes.task.using(queue="tenant.later", delay="300ms").aenqueue()
        await auntil(lambda: len(notes.ran) == 6)


async def test_a_new_queue_is_heard_of_while_another_is_deep(app: App) -> None:
    # Slow jobs, so that a busy machine runs few of them before it hears of the new queue.
    notes = Notes(app, 0.1)
    await notes.put(*["deep"] * 300)
    async with quiet(app, queues=["*"], concurrency=2, grace=0):
        await auntil(lambda: len(notes.ran) > 5)
        await notes.put("new")
        await auntil(lambda: "new" in notes.ran)
        assert len(notes.ran) < 200


async def test_without_notifications_a_new_queue_is_found_by_polling(dsn: str, open_dir: Path) -> None:
    with deaf(dsn, open_dir) as url:
        async with App(url) as app:
            notes = Notes(app)
            async with Worker(app, queues={"a": 1, "*": 2}, poll="100ms"):
                for queue in ("new", "a", "newer"):
                    await notes.put(queue)
                    await auntil(lambda queue=queue: queue in notes.ran)


@pytest.mark.slow
async def test_a_deep_queue_does_not_starve_a_trickle(app: App) -> None:
    waited: list[float] = []
    ran = 0

    @app.task(queue="deep")
    async def work() -> None:
        nonlocal ran
        ran += 1
        await asyncio.sleep(0.01)

    @app.task(queue="trickle")
    async def drop(sent: float) -> None:
        waited.append(time.monotonic() - sent)

    await work.aenqueue_many([dict[str, int]()] * 5000)
    async with Worker(app, concurrency=5, grace=0):
        await auntil(lambda: ran > 100)
        for number in range(20):
            await drop.aenqueue(time.monotonic())
            await auntil(lambda number=number: len(waited) > number)
        assert ran < 4500, "the deep queue was not deep enough to show anything"
    # In the order of arrival each would have waited for seconds.
    assert sorted(waited)[10] < 0.2
    assert max(waited) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 20])
@pytest.mark.parametrize("queues", [["a", "b"], ["*"]])
async def test_shares_follow_the_weights(app: App, concurrency: int, queues: list[str]) -> None:
    notes = Notes(app, 0.002 * concurrency)
    await notes.put(*["b", "a"] * 600)
    async with Worker(app, queues=queues, concurrency=concurrency, balance={"a": 3}, grace=0):
        await auntil(lambda: len(notes.ran) >= 400)
    assert Counter(notes.ran[:400])["a"] == pytest.approx(300, abs=30)


async def test_without_weights_the_shares_are_equal(app: App) -> None:
    notes = Notes(app, 0.002)
    await notes.put(*["a"] * 900, *["b"] * 300, *["c"] * 300)
    async with Worker(app, queues=["*"], concurrency=1, grace=0):
        await auntil(lambda: len(notes.ran) >= 300)
    counts = Counter(notes.ran[:300])
    assert [counts[queue] for queue in "abc"] == pytest.approx([100] * 3, abs=15)


async def test_strictly_a_queue_is_emptied_before_the_next(app: App) -> None:
    notes = Notes(app)
    await notes.put(*["c"] * 100, *["a"] * 50, *["m.2", "m.1"] * 50, *["z"] * 100)
    async with Worker(app, queues=["z", "m.*", "a", "*"], concurrency=1, balance="strict"):
        await auntil(lambda: len(notes.ran) == 350)
    assert notes.ran == ["z"] * 100 + ["m.1"] * 50 + ["m.2"] * 50 + ["a"] * 50 + ["c"] * 100


async def test_strictly_what_comes_into_an_earlier_queue_goes_first(app: App) -> None:
    # Slow jobs, so that a busy machine runs few of them before it hears of the others.
    notes = Notes(app, 0.1)
    await notes.put(*["low"] * 200)
    async with Worker(app, queues=["high", "low"], concurrency=1, balance="strict", grace=0):
        await auntil(lambda: len(notes.ran) > 3)
        await notes.put("high", "high")
        await auntil(lambda: notes.ran.count("high") == 2)
        assert len(notes.ran) < 100


@pytest.mark.slow
@pytest.mark.parametrize("balance", ["round_robin", "strict", {"tenant.1*": 5, "deep": 1}])
async def test_thousands_of_queues_share_a_pool(app: App, balance: str | Mapping[str, int]) -> None:
    notes = Notes(app)
    names = [f"tenant.{number}" for number in range(3000)]
    await notes.put(*names, *["deep"] * 3000)
    async with Worker(app, queues=["*"], concurrency=50, balance=balance) as worker:  # pyright: ignore[reportArgumentType]
        await auntil(lambda: len(notes.ran) == 6000, within=60)
        fetcher = worker._current.slots.fetchers[0]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        await auntil(lambda: not len(fetcher._rotation))  # pyright: ignore[reportPrivateUsage]
    assert Counter(notes.ran) == {**dict.fromkeys(names, 1), "deep": 3000}


async def test_queues_of_tasks_that_nobody_here_knows_do_not_hide_the_others(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    notes = Notes(app)
    conn.execute("select stepwell.enqueue('unknown', queue => 'a' || n) from generate_series(1, 500) n")
    await notes.put("z")
    for balance in ("round_robin", "strict"):
        async with quiet(app, queues=["*"], balance=balance):
            await auntil(lambda: notes.ran == ["z"])
            await notes.put("y")
            await auntil(lambda: notes.ran == ["z", "y"])
        notes.ran.clear()
        await notes.put("z")


async def test_a_paused_queue_under_a_pattern_is_left_alone_until_resumed(app: App) -> None:
    notes = Notes(app)
    await app.apause("b")
    await notes.put("b", "a")
    async with quiet(app, queues=["*"]):
        await auntil(lambda: notes.ran == ["a"])
        await notes.put("b", "c")
        await auntil(lambda: notes.ran == ["a", "c"])
        await app.aresume("b")
        await auntil(lambda: notes.ran == ["a", "c", "b", "b"])


async def test_a_higher_priority_goes_first_under_a_pattern(app: App) -> None:
    notes = Notes(app, 0.1)
    await notes.put(*["a"] * 200)
    async with Worker(app, queues=["*"], concurrency=1, grace=0):
        await auntil(lambda: len(notes.ran) > 3)
        job = await notes.task.using(queue="a", priority=5).aenqueue()
        await job.aresult(timeout="60s")
        assert len(notes.ran) < 100


async def test_jobs_of_all_pools_are_counted_cancelled_and_handed_back(app: App, conn: psycopg.Connection[Any]) -> None:
    gate = Gate(app)
    worker = Worker(app, queues={"a": 1, "*": 2}, lease="3s", renew="200ms", grace="100ms")
    heard = Heard(worker)
    async with worker:
        stays, goes = [await gate.task.using(queue=queue).aenqueue() for queue in ("a", "b")]
        await gate.runs(a=1, b=1)
        await gate.put(a=1, c=1)
        running = "select running, concurrency, queues from stepwell.workers"
        await auntil(lambda: conn.execute(running).fetchone() == (3, 3, ["a", "*"]))
        await goes.acancel()
        with pytest.raises(JobCancelled):
            await goes.aresult(timeout="10s")
    info = await stays.ainfo()
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)
    assert await left(conn) == {"a": 2, "c": 1}
    (started,) = heard.of(WorkerStarted)
    assert "claims from a (1), * (2) in" in started.text()
    assert "3 at once" in started.text()


@pytest.mark.slow
async def test_pools_share_the_processes(app: App, tmp_path: Path) -> None:
    tasks = register(app)
    async with Worker(app, queues={"a": 5, "b": 5}, process_slots=2):
        jobs = [await tasks["square"].using(queue=queue).aenqueue(3) for queue in "abab"]
        assert [(await job.aresult(timeout="30s"))[1] for job in jobs] == [9] * 4
        assert len(multiprocessing.active_children()) == 2
        slow = await tasks["progress"].using(queue="b").aenqueue(str(tmp_path / "flag"))

        async def progress() -> Any:
            info = await slow.ainfo()
            return info and info.progress

        assert await auntil(progress) == {"done": 1, "total": 3, "message": "one"}
        (tmp_path / "flag").touch()
        await slow.aresult(timeout="10s")


async def test_weights_are_held_against_the_queues_that_the_tasks_name(app: App) -> None:
    Notes(app)
    with pytest.raises(ConfigError, match=r"balance gives a weight to 'mail'.*its queues are default"):
        await Worker(app, balance={"mail": 2}).run()


@pytest.mark.parametrize("balance", ["strict", {"a": 2}])
async def test_a_balance_is_refused_where_no_queues_share_slots(app: App, balance: Any) -> None:
    with pytest.raises(ConfigError, match="balance is for queues that share slots"):
        Worker(app, queues={"a": 1, "b": 2}, balance=balance)
    Worker(app, queues={"a": 1, "*": 2}, balance=balance)


async def test_a_task_with_a_pattern_for_a_queue_needs_queues_to_be_named(app: App) -> None:
    @app.task(queue="odd*")
    async def note() -> str:
        return "ran"

    with pytest.raises(ConfigError, match=r"queue is 'odd\*'"):
        await Worker(app).run()
    async with Worker(app, queues=["odd*"]):
        assert await (await note.aenqueue()).aresult(timeout="10s") == "ran"


async def test_a_queue_that_no_task_and_no_ready_job_has_is_warned_about(app: App) -> None:
    @app.task(queue="mail")
    async def post() -> None: ...

    await post.using(queue="tenant-7").aenqueue()
    worker = Worker(app, queues=["mail", "mial", "m*", "x*", "tenant-7", "tenant-*", "default"])
    heard = Heard(worker)
    async with worker:
        pass
    assert [(event.name, event.hint) for event in heard.of(QueueUnknown)] == [
        ("mial", ": did you mean 'mail'?"),
        ("x*", ": check the spelling"),
    ]
