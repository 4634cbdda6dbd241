"""Large values: what the database refuses, and what a worker holds."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from stepwell import App, Context, JobFailed, TooLarge, Worker

MIB = 1024 * 1024


async def test_args_that_the_app_allows_and_the_database_does_not_are_refused_with_the_command(dsn: str) -> None:
    async with App(dsn, max_args_size=5 * MIB) as app:

        @app.task
        async def work(x: str) -> int:
            return len(x)

        small, large = work.aenqueue(x=""), work.aenqueue(x="x" * 2 * MIB)
        found = await asyncio.gather(small, large, return_exceptions=True)
        assert isinstance(found[1], TooLarge)
        assert 'run "stepwell limits set args 3MB"' in str(found[1])
        async with Worker(app):
            # The one beside it went in.
            assert not isinstance(found[0], BaseException)
            assert await found[0].aresult(20) == 0


async def test_a_result_that_the_database_refuses_fails_its_job_for_good(dsn: str) -> None:
    async with App(dsn, max_result_size=5 * MIB) as app:

        @app.task
        async def work() -> str:
            return "x" * 2 * MIB

        async with Worker(app):
            job = await work.aenqueue()
            with pytest.raises(JobFailed, match='run "stepwell limits set result 3MB"'):
                await job.aresult(20)


async def test_a_step_that_the_database_refuses_fails_its_job_for_good(dsn: str) -> None:
    async with App(dsn, max_result_size=5 * MIB) as app:

        async def make() -> str:
            return "x" * 2 * MIB

        @app.task
        async def work(ctx: Context) -> int:
            return len(await ctx.step(make))

        async with Worker(app):
            job = await work.aenqueue()
            with pytest.raises(JobFailed, match='run "stepwell limits set step 3MB"'):
                await job.aresult(20)
        info = await job.ainfo()
        assert info is not None
        assert info.attempt == 1


async def test_an_event_that_the_database_refuses_names_the_command(app: App) -> None:
    with pytest.raises(TooLarge, match='run "stepwell limits set event 3MB"'):
        await app.aemit("shipped", value="x" * 2 * MIB)
    with psycopg.connect(app.dsn, autocommit=True) as owner:
        owner.execute("select stepwell.set_size_limit('event', 3 * 1024 * 1024)")
    await app.aemit("shipped", value="x" * 2 * MIB)
