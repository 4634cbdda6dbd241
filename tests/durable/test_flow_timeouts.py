"""A timeout of a chain is for each of its steps, unless the step has its own."""

from __future__ import annotations

import asyncio

from stepwell import App, Step, Worker


async def test_a_timeout_is_for_a_step_and_not_for_all_of_them(app: App) -> None:
    async def slow(n: int) -> int:
        await asyncio.sleep(0.4)
        return n + 1

    # Five steps take longer than the timeout, and each of them much less, also on a busy machine.
    names = ("second", "third", "fourth", "last")
    chain = app.chain("slow", slow, *(Step(slow, name=name) for name in names), timeout="1.9s")
    patient = app.chain("patient", Step(slow, timeout="60s"), timeout="100ms")
    async with Worker(app):
        jobs = [await chain.using(max_attempts=1).aenqueue(1), await patient.using(max_attempts=1).aenqueue(1)]
        assert [await job.aresult(timeout="20s") for job in jobs] == [6, 2]
