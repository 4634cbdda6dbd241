"""What a worker says of the attempts of a chain: those of the step, not of the job."""

from __future__ import annotations

import pytest
from waiting import Heard

from stepwell import App, JobFailed, Retry, Step, Worker
from stepwell.telemetry.jobs import AttemptFailed


async def test_attempts_are_told_by_the_step(app: App) -> None:
    tried: list[int] = []

    async def first(n: int) -> int:
        tried.append(n)
        if len(tried) == 1:
            raise ConnectionError("away")
        return n

    async def second(n: int) -> int:
        raise ValueError(n)

    soon = Retry(max_attempts=3, initial="1ms")
    chain = app.chain("told", Step(first, retry=soon), Step(second, retry=Retry(max_attempts=1)))
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        job = await chain.aenqueue(7)
        with pytest.raises(JobFailed, match="ValueError"):
            await job.aresult(timeout="20s")
    told = heard.of(AttemptFailed)
    assert [(event.attempt, event.max_attempts) for event in told] == [(1, 3), (1, 1)]
    assert ["next try" in event.text() for event in told] == [True, False]
