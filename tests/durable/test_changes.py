"""Code that changes under running jobs, jobs that begin again, and what guards against mistakes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from deploying import deployed, waits
from waiting import auntil

from stepwell import App, Context, JobFailed, Restart, Retry, Worker
from stepwell.durable import journal
from stepwell.errors import ConfigError

SOON = Retry(max_attempts=5, initial="5ms", jitter=0)
ONCE = Retry(max_attempts=1)


def one() -> str:
    return "one"


def two() -> str:
    return "two"


def renamed() -> str:
    return "not run again"


async def test_steps_may_change_their_order_and_new_ones_may_come_between(dsn: str) -> None:
    def before(app: App) -> Any:
        @app.task(name="work")
        async def work(ctx: Context) -> str:
            return await ctx.step(one) + await ctx.step(two) + str(await ctx.wait_for("deployed"))

        return work

    def after(app: App) -> Any:
        @app.task(name="work")
        async def work(ctx: Context) -> list[str]:
            new = await ctx.step(lambda: "new", key="new")
            return [new, await ctx.step(two), await ctx.step(renamed, was="one")]

        return work

    assert await deployed(dsn, before, after) == ["new", "two", "one"]


async def test_steps_that_were_numbered_under_another_name_are_each_found_under_theirs(dsn: str) -> None:
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    async def charge(amount: int) -> str:
        return f"charged {amount}"

    def before(app: App) -> Any:
        @app.task(name="work")
        async def work(ctx: Context) -> list[str]:
            return [await ctx.step(pay, n) for n in range(2)] + [str(await ctx.wait_for("deployed"))]

        return work

    def after(app: App) -> Any:
        @app.task(name="work")
        async def work(ctx: Context) -> list[str]:
            return [await ctx.step(charge, n, was="pay") for n in range(3)]

        return work

    assert await deployed(dsn, before, after) == ["paid 0", "paid 1", "charged 2"]


async def test_an_old_key_that_two_steps_are_said_to_have_had_is_refused_in_the_first_run(app: App) -> None:
    @app.task(retry=ONCE)
    async def by_both(ctx: Context) -> None:
        await ctx.step(one, key="a", was="old")
        await ctx.step(two, key="b", was="old")

    @app.task(retry=ONCE)
    async def by_one(ctx: Context) -> None:
        await ctx.step(one)
        await ctx.step(two, was="one")

    async with Worker(app):
        for task, said in (
            (by_both, "step 'b' .* has was='old', but another"),
            (by_one, "step 'two' .* has was='one'"),
        ):
            with pytest.raises(JobFailed, match=said):
                await (await task.aenqueue()).aresult(timeout="10s")


@pytest.mark.slow
async def test_a_patch_is_taken_by_jobs_that_come_to_it_and_not_by_those_that_were_past_it(dsn: str) -> None:
    def before(app: App) -> Any:
        @app.task(name="work")
        async def work(ctx: Context) -> str:
            await ctx.step(one)
            await ctx.step(two)
            await ctx.wait_for("deployed")
            return "old"

        return work

    def after(app: App) -> Any:
        @app.task(name="work")
        async def work(ctx: Context) -> list[Any]:
            await ctx.step(one)
            early = ctx.patched("early")
            await ctx.step(two)
            await ctx.wait_for("deployed")
            late = ctx.patched("late")
            await ctx.sleep("1.1s")
            return [early, late, ctx.patched("later")]

        return work

    assert await deployed(dsn, before, after) == [False, True, True]
    async with App(dsn) as app:
        fresh = after(app)
        async with Worker(app):
            assert await (await fresh.aenqueue()).aresult(timeout="10s") == [True, True, True]


@pytest.mark.parametrize(("drift", "result"), [("warn", "first"), ("rerun", "second"), ("fail", None)])
async def test_arguments_that_drift_are_noticed(
    app: App, drift: Any, result: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(word: str) -> str:
        return word

    @app.task(retry=SOON, drift=drift)
    async def work(ctx: Context) -> str:
        answer = await ctx.step(ask, "first" if ctx.attempt == 1 else "second")
        if ctx.attempt == 1:
            raise ValueError
        return answer

    async with Worker(app):
        job = await work.aenqueue()
        if result is None:
            with pytest.raises(JobFailed, match=r"step 'ask' of job .* was saved with other arguments"):
                await job.aresult(timeout="10s")
        else:
            assert await job.aresult(timeout="10s") == result
            assert "step ask of " in caplog.text
        info = await job.ainfo()
    assert info is not None
    assert info.steps[0].value == (result or "first")


@pytest.mark.slow
@pytest.mark.parametrize("pause", ["1ms", "1.1s"])
async def test_a_step_that_is_run_again_for_its_arguments_has_its_tries_anew(app: App, pause: str) -> None:
    asked: list[str] = []

    async def ask(word: str) -> str:
        asked.append(word)
        if asked.count(word) < 2 or word == "never":
            raise ConnectionError(word)
        return word

    @app.task(retry=SOON, drift="rerun")
    async def work(ctx: Context) -> list[Any]:
        policy = Retry(max_attempts=2, initial=pause, jitter=0)
        word = "first" if ctx.attempt == 1 else "second"
        answers: list[Any] = [await ctx.step(ask, word, retry=policy)]
        try:
            await ctx.step(ask, "sooner" if ctx.attempt == 1 else "never", key="caught", retry=policy)
        except ConnectionError as error:
            answers.append(str(error))
        if ctx.attempt == 1:
            raise ValueError
        return answers

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="30s") == ["second", "never"]
        info = await job.ainfo()
    assert asked.count("second") == asked.count("never") == 2
    assert info is not None
    assert [(step.key, step.value, step.error) for step in info.steps if step.kind == "step"] == [
        ("ask", "second", None),
        ("caught", None, "ConnectionError: never"),
    ]


async def test_a_job_may_begin_again_with_no_steps_under_its_id(app: App, conn: psycopg.Connection[Any]) -> None:
    def add(n: int) -> int:
        return n + 1

    @app.task
    async def loop(ctx: Context, n: int, got: list[int]) -> Any:
        n = await ctx.step(add, n)
        event = await ctx.wait_for("number", timeout="5s")
        got = [*got, event.value]
        return Restart(n, got=got) if n < 4 else [n, got]

    for value in range(4):
        await app.aemit("number", value=value)
    async with Worker(app):
        job = await loop.aenqueue(0, [])
        # No event twice, though the steps that took them are gone.
        assert await job.aresult(timeout="10s") == [4, [0, 1, 2, 3]]
        info = await job.ainfo()
    assert info is not None
    assert [step.key for step in info.steps] == ["add", "wait:number"]
    assert (info.attempt, info.args) == (1, {"n": 3, "got": [0, 1, 2]})


@pytest.mark.parametrize("step", ["\0", "a\ud800", 7, b"a"])
async def test_a_step_that_no_job_can_have_is_refused_by_name(app: App, step: Any) -> None:
    job = app.job(uuid4())
    with pytest.raises(ConfigError, match="step is"):
        await app.afork(job, step=step)
    with pytest.raises(ConfigError, match="step is"):
        await job.aretry(step=step)


async def test_a_failed_job_may_be_taken_back_to_a_step(app: App) -> None:
    ran: list[str] = []

    def note(word: str) -> None:
        ran.append(word)

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        for word in ("a", "b", "c"):
            await ctx.step(note, word, key=word)
        raise ValueError("no")

    async with Worker(app):
        job = await work.aenqueue()
        for again, expected in (
            (lambda: job.aretry(), ""),
            (lambda: job.aretry(step="b"), "bc"),
            (lambda: job.aretry(from_start=True), "abc"),
        ):
            with pytest.raises(JobFailed):
                await job.aresult(timeout="10s")
            ran.clear()
            assert await again()
            await auntil(lambda: ended(job))
            assert "".join(ran) == expected
        with pytest.raises(ConfigError, match="exclude each other"):
            await job.aretry(step="b", from_start=True)


async def test_a_failed_job_may_be_taken_back_to_the_step_it_failed_in(app: App) -> None:
    ran: list[str] = []

    def note(word: str) -> None:
        ran.append(word)
        if word == "b" and len(ran) == 2:
            raise ValueError("no")

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        for word in ("a", "b"):
            await ctx.step(note, word, key=word)

    async with Worker(app):
        job = await work.aenqueue()
        with pytest.raises(JobFailed):
            await job.aresult(timeout="10s")
        assert await job.aretry(step="b")
        await job.aresult(timeout="10s")
    assert ran == ["a", "b", "b"]


async def ended(job: Any) -> bool:
    info = await job.ainfo()
    return info.state == "failed"


async def test_a_large_value_is_stored_apart_and_read_when_it_is_asked_for(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    def big() -> str:
        return "x" * 100_000

    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        found = len(await ctx.step(big))
        if ctx.attempt == 1:
            raise ValueError
        return found

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == 100_000
    kept = conn.execute(
        "select v.expires_at = h.expires_at, length(v.value::text), length(h.steps::text) < 1000"
        " from stepwell.large_value v join stepwell.history h on h.id = v.job_id"
    ).fetchall()
    assert kept == [(True, 100_002, True)]


async def test_a_value_that_does_not_encode_names_its_step(app: App) -> None:
    def bad() -> Any:
        return {"x": object()}

    def nan() -> float:
        return float("nan")

    @app.task
    async def work(ctx: Context, which: str) -> None:
        await ctx.step(bad if which == "bad" else nan)

    @app.task
    async def nothing(ctx: Context) -> None:
        await ctx.step("text")  # pyright: ignore[reportCallIssue, reportArgumentType]

    @app.task
    async def a_task(ctx: Context) -> None:
        await ctx.step(work, "bad")  # pyright: ignore[reportCallIssue, reportArgumentType]

    @app.task
    async def a_call(ctx: Context) -> None:
        await ctx.step(asyncio.sleep(0))  # pyright: ignore

    @app.task
    async def a_list(ctx: Context) -> None:
        await ctx.gather([1])  # pyright: ignore

    async with Worker(app):
        with pytest.raises(JobFailed, match="step 'bad' of task 'work' returned a dict, which does not encode"):
            await (await work.aenqueue("bad")).aresult(timeout="10s")
        with pytest.raises(JobFailed, match="step 'nan' of task 'work' returned a float that holds NaN"):
            await (await work.aenqueue("nan")).aresult(timeout="10s")
        for task, said in (
            (nothing, "a step takes a function"),
            (a_task, r"ctx.spawn\(work, ...\)"),
            (a_call, r"ctx.step\(sleep, ...\), not a call of it"),
            (a_list, r"unpack a list with \*"),
        ):
            job = await task.using(max_attempts=1).aenqueue()
            with pytest.raises(JobFailed, match=said):
                await job.aresult(timeout="10s")


async def test_many_steps_are_warned_of_and_too_many_refused(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert (journal.MANY_STEPS, journal.MOST_STEPS) == (1_000, 10_000)
    monkeypatch.setattr(journal, "MANY_STEPS", 10)
    monkeypatch.setattr(journal, "MOST_STEPS", 20)

    @app.task
    async def work(ctx: Context, steps: int) -> None:
        for _ in range(steps):
            await ctx.step(one)

    async with Worker(app):
        await (await work.aenqueue(20)).aresult(timeout="10s")
        with caplog.at_level(logging.WARNING), pytest.raises(JobFailed, match=r"has 20 steps: return Restart\(...\)"):
            await (await work.aenqueue(21)).aresult(timeout="10s")
    assert "has 10 steps" in caplog.text


async def test_steps_are_seen_while_the_job_runs_and_gone_from_the_live_table_at_its_end(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.step(one)
        await ctx.wait_for("go")

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: waits(job))
        info = await job.ainfo()
        assert info is not None
        assert [(step.key, step.pending, step.value, step.event) for step in info.steps] == [
            ("one", False, "one", None),
            ("wait:go", True, None, "go"),
        ]
        await app.aemit("go", value=1)
        await job.aresult(timeout="10s")
    assert conn.execute("select count(*) from stepwell.step").fetchone() == (0,)


async def test_what_was_noted_is_saved_with_a_transaction_and_with_children(app: App) -> None:
    @app.task
    async def child() -> None:
        pass

    def refused() -> None:
        raise KeyError("no")

    @app.task(retry=SOON)
    async def work(ctx: Context, how: str) -> list[Any]:
        new, caught = ctx.patched("new"), False
        try:
            await ctx.step(refused)
        except KeyError:
            caught = True
        if how == "transaction":
            async with ctx.transaction("pay"):
                pass
        else:
            await ctx.spawn(child)
        if ctx.attempt == 1:
            raise ValueError
        return [new, caught]

    async with Worker(app):
        for how in ("transaction", "child"):
            assert await (await work.aenqueue(how)).aresult(timeout="10s") == [True, True]


def _same(text: str) -> str:
    return text


@pytest.mark.slow
async def test_a_large_value_is_the_new_one_after_the_job_was_taken_back(app: App) -> None:
    made: list[str] = []

    def big() -> str:
        made.append(str(len(made)) * 70_000)
        return made[-1]

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        found = (await ctx.step(big))[0]
        await ctx.sleep("1.1s")
        again = await ctx.step(_same, found)
        if len(made) == 1:
            raise ValueError
        return found + again

    async with Worker(app):
        job = await work.aenqueue()
        with pytest.raises(JobFailed):
            await job.aresult(timeout="10s")
        assert await job.aretry(step="big")
        assert await job.aresult(timeout="10s") == "11"
