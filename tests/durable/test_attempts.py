"""Attempts count from the last saved step: a job that makes progress may fail more often than its limit."""

from __future__ import annotations

import pytest
from waiting import Heard

from stepwell import App, Context, JobFailed, Restart, Retry, SyncContext, Worker
from stepwell.telemetry.jobs import AttemptFailed

THREE = Retry(max_attempts=3, initial="5ms", jitter=0)


async def failures(app: App) -> list[int]:
    async with app.database.aconnection() as connection:
        rows = await connection.execute("select attempt from stepwell.failures order by epoch")
        return [row[0] for row in await rows.fetchall()]


@pytest.mark.counts_runs
async def test_a_job_that_fails_after_each_new_step_goes_on(app: App) -> None:
    seen: list[int] = []

    @app.task(retry=THREE)
    async def work(ctx: Context) -> int:
        seen.append(ctx.attempt)
        for n in range(10):
            before = len(seen)
            await ctx.step(abs, n, key=f"step {n}")
            if n >= before - 1:
                raise ConnectionError("down")
        return len(seen)

    async with Worker(app) as worker:
        heard = Heard(worker)
        assert await (await work.aenqueue()).aresult("20s") == 11
    assert await failures(app) == [1] * 10
    assert {event.attempt for event in heard.of(AttemptFailed)} == {1}


async def test_a_job_that_makes_no_progress_fails_after_its_attempts(app: App) -> None:
    @app.task(retry=THREE)
    def work(ctx: SyncContext) -> None:
        ctx.step(int, key="only")
        ctx.uuid()
        raise ConnectionError("down")

    async with Worker(app) as worker:
        heard = Heard(worker)
        with pytest.raises(JobFailed, match="down"):
            await (await work.aenqueue()).aresult("20s")
    assert await failures(app) == [1, 2, 3]
    assert [event.attempt for event in heard.of(AttemptFailed)] == [1, 2, 3]


async def test_a_child_that_fails_in_each_attempt_is_no_progress(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def child() -> None:
        raise ValueError("never")

    @app.task(retry=THREE)
    async def parent(ctx: Context) -> None:
        await ctx.gather(ctx.step(int, key="good"), ctx.spawn(child))

    async with Worker(app):
        job = await parent.aenqueue()
        with pytest.raises(JobFailed, match="never"):
            await job.aresult("20s")
        info = await job.ainfo()
    assert info is not None
    assert [failure.attempt for failure in info.failures] == [1, 2, 3]


@pytest.mark.slow
async def test_children_and_waits_that_end_well_are_progress(app: App) -> None:
    runs: list[int] = []

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task(retry=THREE)
    async def parent(ctx: Context) -> int:
        for n in range(6):
            assert await ctx.spawn(child, n) == n
            await ctx.sleep("1.01s" if n == 0 else "1ms")
            if n == 5 or len(runs) < n:
                runs.append(n)
                if len(runs) < 9:
                    raise ConnectionError("down")
        return len(runs)

    async with Worker(app):
        job = await parent.aenqueue()
        with pytest.raises(JobFailed, match="down"):
            await job.aresult("20s")
    # One failure after each of the first children, and three after the last, which brings nothing more.
    assert await failures(app) == [1, 1, 1, 1, 1, 2, 3]


@pytest.mark.counts_runs
async def test_a_step_that_is_run_again_for_other_arguments_is_no_progress(app: App) -> None:
    runs: list[int] = []

    @app.task(retry=THREE, drift="rerun")
    async def work(ctx: Context) -> None:
        runs.append(1)
        await ctx.step(abs, len(runs))
        raise ConnectionError("down")

    async with Worker(app):
        with pytest.raises(JobFailed, match="down"):
            await (await work.aenqueue()).aresult("20s")
    assert await failures(app) == [1, 2, 3]


@pytest.mark.counts_runs
async def test_a_restart_and_a_retry_count_progress_from_their_own_steps(app: App) -> None:
    runs: dict[int, int] = {}

    @app.task(retry=THREE)
    async def work(ctx: Context, life: int = 0) -> int | Restart:
        runs[life] = runs.get(life, 0) + 1
        for n in range(6 if life == 0 else 4):
            await ctx.step(abs, n, key=f"step {n}")
            if life == 1 and runs[life] <= n:
                raise ConnectionError("down")
        if life == 0 and runs[life] < 2:
            raise ConnectionError("down")
        return Restart(1) if life == 0 else runs[1]

    async with Worker(app):
        assert await (await work.aenqueue()).aresult("20s") == 4
    assert await failures(app) == [1, 1, 1, 1]


async def test_a_restart_with_args_that_do_not_fit_fails_the_job_at_once(app: App) -> None:
    @app.task(retry=Retry(max_attempts=5, initial="1h"))
    async def work(n: int = 0) -> Restart:
        return Restart("x")

    @app.task(retry=Retry(max_attempts=5, initial="1h"))
    def plain(n: int = 0) -> Restart:
        return Restart(wrong=n)

    async with Worker(app):
        for task in (work, plain):
            job = await task.aenqueue()
            with pytest.raises(JobFailed, match="Restart: task "):
                await job.aresult(timeout="10s")
            info = await job.ainfo()
            assert info is not None
            assert [(failure.attempt, failure.reason) for failure in info.failures] == [(1, "bad_result")]


async def test_values_that_each_attempt_draws_anew_are_no_progress(app: App) -> None:
    attempts: list[int] = []

    @app.task(retry=Retry(max_attempts=3, initial="1ms", jitter=0))
    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        for _ in attempts:
            ctx.uuid()
            ctx.random()
        raise ConnectionError("away")

    async with Worker(app):
        with pytest.raises(JobFailed, match="away"):
            await (await work.aenqueue()).aresult(timeout="30s")
    assert attempts == [1, 2, 3]
