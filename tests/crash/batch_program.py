"""The worker of batches that a test kills: its function notes every item of every call, as it begins and as it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any
from uuid import uuid4

import psycopg

from stepwell import App, Retry, Worker

told: dict[str, Any] = json.loads(os.environ["TOLD"])
app = App(told["dsn"], pool_size=3, retry=Retry(initial="50ms", cap="1s"))


@app.task(batch=20, batch_wait="20ms")
async def noted(items: list[int]) -> list[str]:
    call = str(uuid4())
    async with await psycopg.AsyncConnection.connect(told["dsn"], autocommit=True) as ledger:
        await _note(ledger, items, call, "begin")
        await asyncio.sleep(told["seconds"])
        await _note(ledger, items, call, "end")
    return [call] * len(items)


async def _note(ledger: psycopg.AsyncConnection[Any], items: list[int], call: str, phase: str) -> None:
    await ledger.execute(
        "insert into crash.batch (item, call, phase, pid) select unnest(%s::integer[]), %s::uuid, %s, %s",
        (items, call, phase, os.getpid()),
    )


async def main() -> None:
    async with app, Worker(app, **told["settings"]) as worker:
        sys.stdout.write(json.dumps({"event": "WorkerStarted", "worker_id": worker.id}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
