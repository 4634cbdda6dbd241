"""Celery on Redis, as `celery worker` runs it, with its pool of threads, so many as the concurrency says.

Of its pools that run many jobs at once, threads did most jobs per second: more than gevent, and more than prefork with
a process for each core. Prefetch is 64 for each thread, as its guide to optimizing says for short tasks; results, rate
limits, gossip, mingle and heartbeats are off; `hiredis` parses. It has no call to enqueue many: one producer is kept.
Celery's default, kept here, acknowledges a task before it runs: one whose worker dies is lost (`acks_late` is off).
"""

from __future__ import annotations

import os
import sys

import redis
from program import REDIS, main, ping_each


def install() -> None:
    """Celery makes what it needs on first use."""
    redis.Redis.from_url(REDIS).flushall()


def fill(jobs: int) -> None:
    """Enqueue no-ops, on one connection."""
    from tasks import app, noop

    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(jobs):
            noop.apply_async(producer=producer)


def work(concurrency: int) -> None:
    """Become `celery worker`."""
    argv = [sys.executable, "-m", "celery", "--quiet", "-A", "tasks", "worker", "--loglevel", "warning"]
    argv += ["--pool", "threads", "--concurrency", str(concurrency)]
    argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    # Workers on one machine need different names.
    argv += ["--hostname", f"bench{os.getpid()}@%h"]
    os.execv(sys.executable, argv)


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import answer

    ping_each(jobs, answer.delay)


def left() -> int:
    """Messages that wait, and messages that a worker has and did not acknowledge."""
    with redis.Redis.from_url(REDIS) as connection:
        return int(connection.llen("celery")) + int(connection.hlen("unacked"))


main(install=install, fill=fill, work=work, ping=ping, left=left)
