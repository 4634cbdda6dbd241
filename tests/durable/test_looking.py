"""What can be looked up of jobs that wait, and which of them go back to a step."""

from __future__ import annotations

from stepwell import App, Context, Restart, Retry, Worker
from tests.waiting import auntil


async def test_a_job_that_waits_without_a_limit_is_due_at_no_time(app: App) -> None:
    @app.task
    async def patient(ctx: Context) -> None:
        await ctx.wait_for("never")

    async with Worker(app):
        job = await patient.aenqueue()

        async def waits() -> bool:
            info = await job.ainfo()
            return info is not None and info.state == "waiting"

        await auntil(waits)
    info = await job.ainfo()
    assert info is not None
    assert info.run_at is None
    assert await job.acancel()
    info = await job.ainfo()
    assert info is not None
    assert (info.state, info.run_at) == ("cancelled", None)


async def test_a_job_that_waits_for_its_next_try_is_hurried_but_not_sent_back(app: App) -> None:
    @app.task(retry=Retry(max_attempts=2, initial="1h"))
    async def broken(ctx: Context) -> None:
        await ctx.step(lambda: 1, key="one")
        raise ValueError("boom")

    async with Worker(app):
        job = await broken.aenqueue()

        async def is_put_off() -> bool:
            info = await job.ainfo()
            return info is not None and info.state == "scheduled"

        await auntil(is_put_off)
    assert not await job.aretry(step="one")
    assert not await job.aretry(from_start=True)
    assert await job.aretry()


async def test_a_function_may_say_that_it_returns_restart(app: App) -> None:
    @app.task
    async def count(ctx: Context, n: int) -> int | Restart:
        await ctx.step(lambda: n, key="n")
        return n if n == 3 else Restart(n + 1)

    async with Worker(app):
        assert await (await count.aenqueue(1)).aresult(timeout="20s") == 3
