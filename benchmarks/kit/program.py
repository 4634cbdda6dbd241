"""The commands that every measured system's program answers, so that one harness can drive them all.

    install             make the schema in the empty database
    fill JOBS           enqueue so many no-ops, by the system's best way to enqueue many
    work CONCURRENCY    be one worker process, until SIGTERM
    ping JOBS           enqueue one job at a time, each when the one before has run
    flow RATE           enqueue so many jobs a second, in small batches, until killed
    watch JOBS          say that it is ready; wait until so many handlers have run and no job is left unfinished; print
                        the time

It stands alone, on the standard library, because each system imports it in its own virtual environment.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tally import Reading, Tally

DSN = os.environ.get("BENCH_DSN", "")
REDIS = os.environ.get("BENCH_REDIS", "")
# One for each core: what a system that runs one job per process is given.
CORES = os.cpu_count() or 1
PATIENCE = 60


def open_tally() -> Tally:
    """The counter that the handlers of this process use."""
    return Tally(Path(os.environ["BENCH_TALLY"]))


def main(
    *,
    install: Callable[[], None],
    fill: Callable[[int], None],
    work: Callable[[int], None],
    ping: Callable[[int], None],
    left: Callable[[], int],
    flow: Callable[[int], None] | None = None,
) -> None:
    """Do what the command line says. `left` is how many jobs are not finished."""
    command, *rest = sys.argv[1:]
    number = int(rest[0]) if rest else 0
    match command:
        case "install":
            install()
        case "fill":
            fill(number)
        case "work":
            work(number)
        case "ping":
            ping(number)
        case "flow" if flow is not None:
            flow(number)
        case "watch":
            print(_watch(number, left))
        case _:
            sys.exit(f"{command!r} is no command: {__doc__}")


def _watch(jobs: int, left: Callable[[], int]) -> float:
    """When the last job was finished for the system itself: acknowledged, and not only run."""
    ran = Reading(Path(os.environ["BENCH_TALLY"]))
    left()  # with all that it imports and opens
    print("ready", flush=True)
    while ran.count < jobs:
        time.sleep(0.01)
    while left() > 0:
        time.sleep(0.005)
    return time.monotonic()


async def aflow(rate: int, enqueue: Callable[[list[int]], Awaitable[object]]) -> None:
    """Call `enqueue` every ten milliseconds with as many times as are due by then, until killed."""
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate) - sent
        if due > 0:
            await enqueue([time.monotonic_ns()] * due)
            sent += due
        await asyncio.sleep(0.01)


def ping_each(jobs: int, enqueue: Callable[[int], object]) -> None:
    """Call `enqueue` with the time, wait until that job has run and a moment more, and so on."""
    ran = Reading(Path(os.environ["BENCH_TALLY"]))
    for number in range(ran.answers + 1, ran.answers + jobs + 1):
        enqueue(time.monotonic_ns())
        deadline = time.monotonic() + PATIENCE
        while ran.answers < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"a job was not run in {PATIENCE} s")
            time.sleep(0.001)
        time.sleep(random.uniform(0.005, 0.02))


async def aping_each(jobs: int, enqueue: Callable[[int], Awaitable[object]]) -> None:
    """The same for an async `enqueue`."""
    ran = Reading(Path(os.environ["BENCH_TALLY"]))
    for number in range(ran.answers + 1, ran.answers + jobs + 1):
        await enqueue(time.monotonic_ns())
        async with asyncio.timeout(PATIENCE):
            while ran.answers < number:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await asyncio.sleep(random.uniform(0.005, 0.02))
