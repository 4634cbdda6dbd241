"""Dramatiq on Redis, as its command line runs it, in one process with so many threads as the concurrency says.

By its documented environment variables it prefetches 8 messages for each thread, which was faster than its own 2, and
looks for messages every 10 ms when idle (with 10 threads; more rarely with more) instead of up to every second.
`hiredis` parses. It has no call to enqueue many on Redis. It acknowledges after the handler, and keeps no results.
"""

from __future__ import annotations

import os
import sys

from program import REDIS, main, ping_each
from redis import Redis


def install() -> None:
    """Dramatiq makes what it needs on first use."""
    Redis.from_url(REDIS).flushall()


def fill(jobs: int) -> None:
    """Enqueue no-ops one by one: it has no call for many."""
    from tasks import noop

    for _ in range(jobs):
        noop.send()


def work(concurrency: int) -> None:
    """Become `dramatiq`."""
    # Every idle thread wakes so often: more than 1,000 wake-ups a second, of all threads, would slow the busy ones.
    milliseconds = max(10, concurrency)
    os.environ.update(dramatiq_queue_prefetch=str(8 * concurrency), dramatiq_worker_timeout=str(milliseconds))
    argv = [sys.executable, "-m", "dramatiq", "tasks", "--processes", "1", "--threads", str(concurrency)]
    # Its own set-up logs at info; without it Python's default is warning.
    os.execv(sys.executable, [*argv, "--skip-logging"])


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import answer

    ping_each(jobs, answer.send)


def left() -> int:
    """Messages are in this hash until they are acknowledged."""
    with Redis.from_url(REDIS) as connection:
        return int(connection.hlen("dramatiq:default.msgs"))


main(install=install, fill=fill, work=work, ping=ping, left=left)
