"""The worker whose jobs are measured, with its settings."""

from __future__ import annotations

import asyncio
import os

import uvloop
from arq.connections import RedisSettings
from program import REDIS, open_tally

# The `arq` command takes the loop of the policy.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
tally = open_tally()


async def noop(_: dict[str, object]) -> None:
    """Nothing."""
    tally.hit()


async def answer(_: dict[str, object], sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)


class WorkerSettings:
    """What the `arq` command reads."""

    functions = (noop, answer)
    redis_settings = RedisSettings.from_dsn(REDIS)
    max_jobs = int(os.environ.get("ARQ_MAX_JOBS", "10"))
    poll_delay = 0.01
    keep_result = 0
    log_results = False


LOGGING = {"version": 1, "loggers": {"arq": {"level": "WARNING"}}}
