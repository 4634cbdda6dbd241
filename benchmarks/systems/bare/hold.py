"""The ceiling of saving: hold jobs, and save a step of a batch of them at a time, and nothing else.

    hold.py BATCH BATCHES STEPS LOOPS

claims so many batches for each loop, then saves so many steps of each job, and prints how many that was in a second.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import psycopg
import uvloop
from program import DSN
from saving import save

from stepwell.postgres import queries
from stepwell.postgres.fetch import afetch
from stepwell.postgres.queries.claims import Position
from stepwell.values.job import ClaimedJob


async def main(batch: int, batches: int, steps: int, loops: int) -> None:
    """Claim first: only the saving is timed."""
    connections = [await _connect() for _ in range(loops)]
    register = queries.fleet.register_worker("bench", os.getpid(), "bare", ["default"], "{}", batch, 86400)
    [worker_id] = await afetch(connections[0], register)
    held: list[list[ClaimedJob]] = []
    for _ in range(loops * batches):
        held.append(
            await afetch(connections[0], queries.claims.claim(worker_id, ["default"], [Position()], ["noop"], batch))
        )
        if len(held[-1]) < batch:
            raise RuntimeError(f"there were fewer than {loops * batches * batch} jobs to hold: fill the queue first")

    async def loop(number: int) -> None:
        for jobs in held[number::loops]:
            ids, epochs = [job.id for job in jobs], [job.epoch for job in jobs]
            for n in range(1, steps + 1):
                refused, _ = (await afetch(connections[number], save(ids, epochs, n)))[0]
                if refused:
                    raise RuntimeError("steps of jobs that are held were refused")

    began = time.perf_counter()
    await asyncio.gather(*(loop(number) for number in range(loops)))
    print(loops * batches * batch * steps / (time.perf_counter() - began))


async def _connect() -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(DSN, autocommit=True, prepare_threshold=None)


uvloop.run(main(*map(int, sys.argv[1:])))
