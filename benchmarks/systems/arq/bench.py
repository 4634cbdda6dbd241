"""arq, as its command line runs it, with `max_jobs` as the concurrency says.

It polls every 10 ms (`poll_delay`; its default of 500 ms bounds both throughput and latency), keeps no results
(`keep_result=0`), logs none, and runs on uvloop, which took a sixth off the processor time of a job; `hiredis` parses.
It has no call to enqueue many: `enqueue_job` is called by 100 coroutines at once. It removes a job after the handler.
"""

from __future__ import annotations

import asyncio
import os
import sys

import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from program import REDIS, aping_each, main
from redis import Redis

_AT_ONCE = 100


def install() -> None:
    """arq makes what it needs on first use."""
    Redis.from_url(REDIS).flushall()


def fill(jobs: int) -> None:
    """Enqueue no-ops, some at once: it has no call for many."""

    async def each(pool: ArqRedis, count: int) -> None:
        for _ in range(count):
            await pool.enqueue_job("noop")

    async def all_of_them() -> None:
        pool = await create_pool(RedisSettings.from_dsn(REDIS))
        shares = [jobs // _AT_ONCE + (number < jobs % _AT_ONCE) for number in range(_AT_ONCE)]
        await asyncio.gather(*(each(pool, share) for share in shares))

    uvloop.run(all_of_them())


def work(concurrency: int) -> None:
    """Become `arq`."""
    os.environ["ARQ_MAX_JOBS"] = str(concurrency)
    argv = [sys.executable, "-m", "arq", "tasks.WorkerSettings", "--custom-log-dict", "tasks.LOGGING"]
    os.execv(sys.executable, argv)


def ping(jobs: int) -> None:
    """One job at a time."""

    async def each() -> None:
        pool = await create_pool(RedisSettings.from_dsn(REDIS))
        await aping_each(jobs, lambda sent: pool.enqueue_job("answer", sent))

    uvloop.run(each())


def left() -> int:
    """A job is in this set until it is finished."""
    with Redis.from_url(REDIS) as connection:
        return int(connection.zcard("arq:queue"))


main(install=install, fill=fill, work=work, ping=ping, left=left)
