"""RQ, as `rq worker-pool` runs it, with one worker for each core, because an RQ worker runs one job at a time.

`SimpleWorker` runs the job in the worker's process: RQ's own notes on performance name it for jobs of a few
milliseconds, and it is several times faster than the default, which forks for every job. Jobs are enqueued with
`enqueue_many`, which is one pipeline; `hiredis` parses. Results are kept as by default: `result_ttl=0` was slower.
RQ's default, kept here: a job whose worker died is marked as failed, and runs again only if it was given a `Retry`.
"""

from __future__ import annotations

import os
import sys

from program import CORES, REDIS, main, ping_each
from redis import Redis
from rq import Queue
from rq.registry import StartedJobRegistry

# Bounds what one pipeline holds in memory.
_CHUNK = 1_000


def install() -> None:
    """RQ makes what it needs on first use."""
    Redis.from_url(REDIS).flushall()


def fill(jobs: int) -> None:
    """Enqueue no-ops, a thousand in one pipeline."""
    from tasks import noop

    queue = Queue(connection=Redis.from_url(REDIS))
    for begin in range(0, jobs, _CHUNK):
        queue.enqueue_many([Queue.prepare_data(noop) for _ in range(min(_CHUNK, jobs - begin))])


def work(concurrency: int) -> None:  # noqa: ARG001
    """Become `rq worker-pool`."""
    argv = [sys.executable, "-m", "rq.cli", "worker-pool", "--url", REDIS, "--num-workers", str(CORES)]
    os.execv(sys.executable, [*argv, "--worker-class", "rq.worker.SimpleWorker", "--quiet"])


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import answer

    queue = Queue(connection=Redis.from_url(REDIS))
    ping_each(jobs, lambda sent: queue.enqueue(answer, sent))


def left() -> int:
    """Jobs that wait, and jobs that a worker has: on their way to it, or started."""
    with Redis.from_url(REDIS) as connection:
        queue = Queue(connection=connection)
        started = StartedJobRegistry(queue=queue)
        with connection.pipeline() as pipeline:
            pipeline.llen(queue.key)
            pipeline.llen(queue.intermediate_queue_key)
            pipeline.zcard(started.key)
            return sum(map(int, pipeline.execute()))


main(install=install, fill=fill, work=work, ping=ping, left=left)
