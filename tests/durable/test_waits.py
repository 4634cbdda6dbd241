"""A job that waits costs no slot, and goes on when what it waits for has come: at once, once, and in order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, JobFailed, JobNotFound, Retry, SyncContext, Task, Worker
from stepwell.errors import BadArgs, ConfigError
from stepwell.testing import Clock, adrain


async def failed(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "failed"


async def waiting(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "waiting"


@pytest.mark.slow
@pytest.mark.counts_runs
async def test_a_sleep_gives_the_slot_back_and_does_not_count(app: App) -> None:
    @app.task
    async def nap(ctx: Context) -> int:
        await ctx.sleep("1.1s")
        await ctx.sleep("20ms")
        return ctx.attempt

    @app.task
    async def quick() -> None:
        pass

    async with Worker(app, concurrency=1):
        began = time.monotonic()
        job = await nap.aenqueue()
        await auntil(lambda: waiting(job))
        await (await quick.aenqueue()).aresult(timeout="10s")
        assert await job.aresult(timeout="10s") == 1
        assert 1.1 <= time.monotonic() - began < 3
        info = await job.ainfo()
    assert info is not None
    assert info.epoch == 2
    assert [(step.key, step.kind) for step in info.steps] == [("sleep", "sleep")]


async def test_sleep_until_a_time_that_is_past_goes_on_at_once(app: App) -> None:
    @app.task
    async def nap(ctx: Context, at: datetime) -> None:
        await ctx.sleep_until(at)

    async with Worker(app):
        for at in (datetime.now(UTC) - timedelta(days=1), datetime(1, 1, 2, tzinfo=UTC)):
            await (await nap.aenqueue(at)).aresult(timeout="10s")


async def test_an_event_wakes_all_who_wait_for_its_key(app: App) -> None:
    @app.task
    async def ship(ctx: Context, order: int) -> Any:
        return (await ctx.wait_for("paid", key=str(order))).value

    async with Worker(app):
        jobs = [await ship.aenqueue(order) for order in (1, 1, 2)]
        for job in jobs:
            await auntil(lambda job=job: waiting(job))
        await app.aemit("paid", key="1", value={"by": "card"})
        assert [await job.aresult(timeout="10s") for job in jobs[:2]] == [{"by": "card"}] * 2
        assert await waiting(jobs[2])
        await app.aemit("paid", key="2")
        assert await jobs[2].aresult(timeout="10s") is None


async def test_a_step_says_how_long_it_waited_for_a_signal_and_for_a_child(app: App) -> None:
    @app.task
    async def approve(ctx: Context) -> None:
        await ctx.receive("approved")

    @app.task
    async def buy(ctx: Context) -> None:
        await ctx.spawn(approve)

    async with Clock(app) as clock:
        job = await buy.aenqueue()
        await adrain(app)
        [child] = await app.ajobs(task="approve")
        await clock.advance("90s")
        await app.job(child.id).asend("approved")
        await adrain(app)
        for each in (child.id, job.id):
            info = await app.job(each).ainfo()
            assert info is not None
            assert [(step.pending, step.seconds) for step in info.steps] == [(False, 90.0)]


async def test_an_event_from_before_counts_and_each_is_taken_once_in_order(app: App) -> None:
    @app.task
    async def read(ctx: Context) -> list[int]:
        return [(await ctx.wait_for("news")).value for _ in range(3)]

    await app.aemit("news", value=1)
    await app.aemit("news", value=2)
    async with Worker(app):
        job = await read.aenqueue()
        await auntil(lambda: waiting(job))
        await app.aemit("news", value=3)
        assert await job.aresult(timeout="10s") == [1, 2, 3]


@pytest.mark.slow
async def test_a_wait_that_is_given_up_says_so_ever_after(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> list[bool]:
        first = await ctx.wait_for("never", timeout="50ms")
        await app.aemit("never", value=1)
        await ctx.sleep("1.1s")
        second = await ctx.wait_for("never", timeout="5s")
        assert not first
        with pytest.raises(TimeoutError, match="'never'"):
            _ = first.value
        return [first.timed_out, second.timed_out]

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == [True, False]


async def test_an_event_in_a_transaction_comes_with_its_commit(app: App, dsn: str) -> None:
    @app.task
    async def work(ctx: Context, about: str) -> Any:
        return (await ctx.wait_for("done", key=about)).value

    async with Worker(app), await psycopg.AsyncConnection.connect(dsn) as conn:
        async with conn.transaction(force_rollback=True):
            await app.aemit("done", key="a", value="not this", connection=conn)
        async with conn.transaction():
            await app.aemit("done", key="a", value="this", connection=conn)
            # Begun while the event is written and not committed.
            job = await work.aenqueue("a")
            await auntil(lambda: waiting(job))
        assert await job.aresult(timeout="10s") == "this"
        await conn.execute("""select stepwell.emit('done', 'b', '{"plain": "sql"}')""")
        await conn.commit()
        assert await (await work.aenqueue("b")).aresult(timeout="10s") == {"plain": "sql"}


@pytest.mark.slow
async def test_nobody_misses_an_event_that_comes_while_it_begins_to_wait(app: App) -> None:
    @app.task
    async def work(ctx: Context, about: str) -> Any:
        return (await ctx.wait_for("race", key=about, timeout="8s")).value

    async with Worker(app, concurrency=50):
        jobs = [await work.aenqueue(f"{n}") for n in range(100)]

        async def emit(n: int) -> None:
            await asyncio.sleep(n / 2000)
            await app.aemit("race", key=f"{n}", value=n)

        await asyncio.gather(*(emit(n) for n in range(100)))
        assert [await job.aresult(timeout="10s") for job in jobs] == list(range(100))


async def test_what_a_large_event_or_signal_says_is_read_where_it_is_waited_for(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def work(ctx: Context) -> list[int]:
        event = await ctx.wait_for("big")
        signal = await ctx.receive("big")
        await ctx.sleep("1.1s")
        return [len(event.value), len(signal.value)]

    async with Worker(app):
        jobs = [await work.aenqueue() for _ in range(3)]
        for job in jobs:
            await auntil(lambda job=job: waiting(job))
        await app.aemit("big", value="x" * 100_000)
        for job in jobs:
            await job.asend("big", "y" * 90_000)
        assert [await job.aresult(timeout="20s") for job in jobs] == [[100_000, 90_000]] * 3
    assert conn.execute("select max(length(steps::text)) < 5000 from stepwell.history").fetchone() == (True,)


@pytest.mark.counts_runs
async def test_who_keeps_the_lock_of_an_event_makes_nobody_spin(
    app: App, conn: psycopg.Connection[Any], dsn: str
) -> None:
    @app.task
    async def work(ctx: Context, about: str) -> Any:
        return (await ctx.wait_for("locked", key=about)).value

    with psycopg.connect(dsn, autocommit=True) as anybody:
        for key in ("a", "b"):
            anybody.execute("select pg_advisory_lock(1937007984, hashtext('locked' || chr(1) || %s))", (key,))
        async with Worker(app):
            first, second = await work.aenqueue("a"), await work.aenqueue("b")
            for job in (first, second):
                await auntil(lambda job=job: waiting(job))
            # Several looks later each has been run once.
            looks = "select min(unsure) > 4, max(epoch) from stepwell.job"
            await auntil(lambda: conn.execute(looks).fetchone() == (True, 1))
            await app.aemit("locked", key="a", value=1)
            assert await first.aresult(timeout="10s") == 1
            anybody.execute("select pg_advisory_unlock_all()")
            await app.aemit("locked", key="b", value=2)
            assert await second.aresult(timeout="10s") == 2
            info = await first.ainfo()
    assert info is not None
    assert info.epoch == 2


async def test_what_is_sent_to_a_job_is_taken_first_in_first_out_and_once(app: App) -> None:
    @app.task
    async def talk(ctx: Context) -> list[Any]:
        said: list[Any] = []
        while True:
            word = await ctx.receive("word", timeout="60s")
            if word.timed_out or word.value is None:
                return said
            said.append(word.value)

    async with Worker(app):
        job, other = await talk.aenqueue(), await talk.aenqueue()
        for n in range(3):
            await job.asend("word", n)
        await auntil(lambda: waiting(job))
        await job.asend("word", "last")
        await job.asend("word")
        await other.asend("word")
        assert await job.aresult(timeout="10s") == [0, 1, 2, "last"]
        assert await other.aresult(timeout="10s") == []
        with pytest.raises(JobNotFound, match="not live"):
            await job.asend("word", 1)


async def test_what_was_sent_and_not_read_is_there_when_a_failed_job_is_tried_again(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    broken = True

    @app.task(retry=Retry(max_attempts=1))
    async def talk(ctx: Context) -> list[Any]:
        said = [(await ctx.receive("word")).value]
        if broken:
            raise ValueError("broken")
        return [*said, (await ctx.receive("word")).value]

    @app.task(retry=Retry(max_attempts=1))
    async def plain() -> None:
        await sent.wait()
        if broken:
            raise ValueError("broken")

    sent = asyncio.Event()
    count = "select count(*) from stepwell.event where expires_at {} 'infinity'"
    async with Worker(app):
        job = await talk.aenqueue()
        for n in range(3):
            await job.asend("word", n)
        with pytest.raises(JobFailed, match="broken"):
            await job.aresult(timeout="10s")
        # Until its history goes.
        assert conn.execute(count.format("<")).fetchone() == (2,)
        broken = False
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == [0, 1]
        # What it has not read when it succeeds nobody will, also if it never had a step.
        dull = await plain.aenqueue()
        await dull.asend("word", 1)
        broken = True
        sent.set()
        await auntil(lambda: failed(dull))
        broken = False
        assert await dull.aretry()
        await dull.aresult(timeout="10s")
    assert conn.execute("select count(*) from stepwell.event").fetchone() == (0,)


async def test_who_sends_in_a_long_transaction_holds_nobody_up(
    app: App, conn: psycopg.Connection[Any], dsn: str
) -> None:
    running, go_on = [asyncio.Event(), asyncio.Event()], asyncio.Event()
    broken = True

    @app.task(retry=Retry(max_attempts=1))
    async def busy(ctx: Context, place: int, fails: bool) -> str:
        running[place].set()
        await go_on.wait()
        await ctx.step(asyncio.sleep, 0)
        if not fails:
            return "ended"
        if broken:
            raise ValueError("broken")
        return (await ctx.receive("word")).value

    @app.task
    async def talk(ctx: Context) -> str:
        return (await ctx.receive("word")).value

    send = "select stepwell.send(%s, 'word', '\"hello\"')"
    async with Worker(app), await psycopg.AsyncConnection.connect(dsn) as sender:
        job, failing, listener = await busy.aenqueue(0, False), await busy.aenqueue(1, True), await talk.aenqueue()
        for one in running:
            await one.wait()
        for live in (job, failing, listener):
            assert await (await sender.execute(send, (live.id,))).fetchone() == (True,)
        go_on.set()
        # They have taken a step and ended, with what they were sent not committed yet.
        assert await job.aresult(timeout="10s") == "ended"
        with pytest.raises(JobFailed, match="broken"):
            await failing.aresult(timeout="10s")
        await sender.commit()
        assert await listener.aresult(timeout="10s") == "hello"
        # It is there for one that is tried again, and nothing is left for one that is not.
        assert conn.execute("select job_id from stepwell.event where expires_at < 'infinity'").fetchall() == [
            (failing.id,)
        ]
        broken = False
        assert await failing.aretry()
        assert await failing.aresult(timeout="10s") == "hello"
    assert conn.execute("select count(*) from stepwell.event").fetchone() == (0,)


async def test_jobs_may_send_to_each_other_in_their_transactions(app: App) -> None:
    partners: dict[str, Any] = {}
    ready = asyncio.Barrier(2)

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> Any:
        async with ctx.transaction("first") as tx:
            await app.job(partners[str(ctx.id)]).asend("word", "hello", connection=tx.connection)
            await ready.wait()
        return (await ctx.receive("word")).value

    one, other = await work.aenqueue(), await work.aenqueue()
    partners = {str(one.id): other.id, str(other.id): one.id}
    async with Worker(app):
        for job in (one, other):
            assert await job.aresult(timeout="20s") == "hello"


@pytest.mark.parametrize("call", ["stepwell.emit('word', null, %s)", "stepwell.send(%s, 'word', %s)"])
async def test_a_value_that_could_not_be_read_again_is_refused(
    app: App, conn: psycopg.Connection[Any], call: str
) -> None:
    @app.task
    async def talk(ctx: Context) -> Any:
        return (await ctx.receive("word")).value

    job = await talk.aenqueue()
    for value in ('"a\\u0000"', '"\\ud800"', '["\\udc00\\ud800"]', "1e999999"):
        with pytest.raises(psycopg.DataError, match="stepwell: Postgres cannot store this value"):
            conn.execute(f"select {call}", (value,) if "emit" in call else (job.id, value))  # pyright: ignore[reportArgumentType]
    for value in ('"\\ud83d\\ude00"', '"\\\\u0000"', "null"):
        conn.execute(f"select {call}", (value,) if "emit" in call else (job.id, value))  # pyright: ignore[reportArgumentType]


async def test_what_was_sent_and_read_is_there_again_for_a_job_that_begins_anew(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    broken = True

    @app.task(retry=Retry(max_attempts=1))
    async def talk(ctx: Context) -> list[Any]:
        said = [(await ctx.receive("word")).value, (await ctx.receive("word")).value]
        if broken:
            raise ValueError("broken")
        return said

    async with Worker(app):
        every: list[dict[str, Any]] = [{"from_start": True}, {"step": "receive:word#2"}, {}]
        for options in every:
            broken = True
            job = await talk.aenqueue()
            for n in range(2):
                await job.asend("word", n)
            with pytest.raises(JobFailed, match="broken"):
                await job.aresult(timeout="10s")
            broken = False
            assert await job.aretry(**options)
            assert await job.aresult(timeout="10s") == [0, 1]
    assert conn.execute("select count(*) from stepwell.event").fetchone() == (0,)


async def test_waits_that_make_no_sense_are_refused_with_what_to_say(app: App) -> None:
    said: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        for ask in (
            lambda: ctx.sleep("soon"),
            lambda: ctx.sleep(-1),
            lambda: ctx.sleep_until(datetime(2030, 1, 1)),  # noqa: DTZ001
            lambda: ctx.wait_for(""),
            lambda: ctx.wait_for("x", key="\0"),
            lambda: ctx.wait_for("x", timeout="never"),
            lambda: ctx.receive("x" * 201),
        ):
            with pytest.raises(ConfigError) as raised:
                await ask()
            said.append(str(raised.value))

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="10s")
    assert len(said) == 7
    with pytest.raises(ConfigError, match="event is ''"):
        await app.aemit("")
    with pytest.raises(BadArgs, match="does not encode"):
        await app.aemit("x", value=object())


async def test_an_event_that_has_expired_is_not_found_and_forgotten(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work(ctx: Context) -> bool:
        return (await ctx.wait_for("old", timeout="20ms")).timed_out

    await app.aemit("old", keep=0)
    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s")
    conn.execute("select stepwell.prune_events()")
    assert conn.execute("select count(*) from stepwell.event").fetchone() == (0,)


async def test_a_wait_that_is_swallowed_is_a_wait_all_the_same(app: App) -> None:
    @app.task
    async def returns(ctx: Context) -> str:
        with contextlib.suppress(BaseException):
            await ctx.wait_for("go", key="returns")
            return "went"
        return "never"

    @app.task
    async def goes_on(ctx: Context) -> list[Any]:
        try:
            word = (await ctx.wait_for("go", key="goes on")).value
        except:  # noqa: E722
            word = "never"
        return [word, await ctx.step(str, "x")]

    @app.task
    def plain(ctx: SyncContext) -> Any:
        try:
            return ctx.wait_for("go", key="plain").value
        except:  # noqa: E722
            return "never"

    tasks: list[Task[..., Any]] = [returns, goes_on, plain]
    async with Worker(app):
        jobs = [await task.aenqueue() for task in tasks]
        for job in jobs:
            await auntil(lambda job=job: waiting(job))
        for key in ("returns", "goes on", "plain"):
            await app.aemit("go", key=key, value=key)
        assert [await job.aresult(timeout="10s") for job in jobs] == ["went", ["goes on", "x"], "plain"]


async def test_a_loop_that_swallows_its_waits_takes_no_turns_from_others(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    swallowed: list[int] = []

    @app.task(retry=Retry(max_attempts=1))
    async def circles(ctx: Context) -> str:
        while len(swallowed) < 5:
            with contextlib.suppress(BaseException):
                await ctx.wait_for("never", timeout="1h")
            swallowed.append(1)
        return "never"

    @app.task
    async def other() -> str:
        return "had its turn"

    async with Worker(app):
        job = await circles.aenqueue()
        await auntil(lambda: len(swallowed) > 1)
        assert await (await other.aenqueue()).aresult(timeout="10s") == "had its turn"
        assert len(swallowed) < 5
        await auntil(lambda: waiting(job))
    assert f"circles {job.id} caught the exception that suspends it" in caplog.text


async def test_a_value_that_is_asked_of_a_wait_that_timed_out_fails_the_job_for_good(app: App) -> None:
    @app.task
    async def unwary(ctx: Context) -> Any:
        return (await ctx.wait_for("never", timeout="0s")).value

    async with Worker(app):
        job = await unwary.aenqueue()
        with pytest.raises(JobFailed, match="no event 'never' came in time: look at timed_out first"):
            await job.aresult(timeout="10s")


async def test_a_step_that_was_of_another_kind_is_refused(app: App, dsn: str) -> None:
    @app.task(name="work")
    async def before(ctx: Context) -> None:
        await ctx.step(str, key="x")
        await ctx.sleep("1.1s")

    async with Worker(app):
        job = await before.aenqueue()
        await auntil(lambda: waiting(job))
    async with App(dsn) as later:

        @later.task(name="work", retry=Retry(max_attempts=1))
        async def after(ctx: Context) -> None:
            await ctx.sleep("1.1s", key="x")

        assert after
        async with Worker(later):
            with pytest.raises(
                JobFailed, match=r"'x' of job .* was saved as a step and is a sleep now: give it another key="
            ):
                await job.aresult(timeout="10s")


async def test_an_event_that_was_there_is_taken_by_a_wait_that_waits_for_no_time(app: App) -> None:
    @app.task
    async def look(ctx: Context) -> list[bool]:
        return [(await ctx.wait_for("there", timeout=0)).timed_out, (await ctx.wait_for("not", timeout=0)).timed_out]

    await app.aemit("there")
    async with Worker(app):
        assert await (await look.aenqueue()).aresult(timeout="10s") == [False, True]


async def test_an_event_that_is_not_kept_reaches_those_who_wait(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> Any:
        return (await ctx.wait_for("now", timeout="5s")).value

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: waiting(job))
        await app.aemit("now", value=1, keep=0)
        assert await job.aresult(timeout="10s") == 1


async def test_emitting_where_waits_could_be_overlooked_is_refused(app: App, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        await conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(psycopg.Error, match="need a transaction at read committed"):
            await app.aemit("x", connection=conn)
