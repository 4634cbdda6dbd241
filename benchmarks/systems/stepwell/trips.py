"""Count the round trips of a job: run it in a worker with one slot, in this process, and print what was asked for it.

    trips.py TASK

prints one line for each run of the job, with the functions that were called for it in order. What a worker asks when it
has nothing to do, such as a claim that finds nothing, is left out.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import uvloop
from tasks import app

from stepwell.postgres.queries import Query
from stepwell.worker import Worker
from stepwell.worker.worker_connection import WorkerConnection

ASKED = re.compile(r"stepwell\.(\w+)\(")
FOR_A_JOB = {"save_steps", "finish", "fail", "suspend", "advance", "spawn", "large_value", "step_saved"}

asked: list[str] = []
fetch = WorkerConnection.fetch


async def counted(self: WorkerConnection, query: Query[Any]) -> list[Any]:
    """As `WorkerConnection.fetch`, which all of these use: only its answer says whether a claim found something."""
    found = ASKED.search(query.text)
    name = found[1] if found else ""
    # A write is noted when it is sent, a claim when it has found something: they go over several connections, and the
    # answer to a write may be read after the claim of the run that it led to.
    if name in FOR_A_JOB:
        asked.append(name)
    rows = await fetch(self, query)
    if name == "claim_jobs" and rows:
        asked.append("claim")
    return rows


async def main(task: str) -> None:
    """Run it once."""
    async with app, Worker(app, concurrency=1):
        handle = await app.tasks[task].aenqueue()
        await handle.aresult()
    runs = " ".join(asked).split("claim")
    for run in runs[1:]:
        print("claim", *run.split())


WorkerConnection.fetch = counted
uvloop.run(main(sys.argv[1]))
