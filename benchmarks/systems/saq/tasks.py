"""The queue, its functions, and the settings that `saq tasks.settings` reads."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import uvloop
from program import DSN, open_tally
from saq import Queue

# SAQ's runner asks the policy for its loop, so this is how it is given uvloop.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

queue = Queue.from_url(DSN)
tally = open_tally()


async def noop(_ctx: dict[str, Any]) -> None:
    """Nothing."""
    tally.hit()


async def answer(_ctx: dict[str, Any], *, sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)


settings = {
    "queue": queue,
    "functions": [noop, answer],
    "concurrency": int(os.environ.get("SAQ_CONCURRENCY", "10")),
}
