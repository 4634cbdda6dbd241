"""Functions in processes: values, failures, death and timeouts."""

from __future__ import annotations

import os
import time

import pytest
from process_tasks import register

from stepwell import App, JobFailed, Retry, Worker

ONCE = Retry(max_attempts=1)


async def test_a_process_is_killed_at_its_timeout(app: App) -> None:
    sleep = register(app)["sleep"]
    async with Worker(app):
        began = time.monotonic()
        with pytest.raises(JobFailed, match="longer than its timeout"):
            await (await sleep.aenqueue(60)).aresult(timeout="30s")
        assert time.monotonic() - began < 20


async def test_processes_return_values_and_failures(app: App) -> None:
    tasks = register(app)
    async with Worker(app):
        pid, squared = await (await tasks["square"].aenqueue(7)).aresult(timeout="30s")
        assert squared == 49
        assert pid != os.getpid()
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await (await tasks["divide"].aenqueue(0)).aresult(timeout="30s")
        with pytest.raises(JobFailed, match="ProcessExpired"):
            await (await tasks["die"].aenqueue()).aresult(timeout="30s")
        assert (await (await tasks["square"].aenqueue(3)).aresult(timeout="30s"))[1] == 9
