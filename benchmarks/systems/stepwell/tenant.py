"""A small tenant: enqueue ten jobs at once, and wait until they have ended, so many times."""

from __future__ import annotations

import sys
import time

from tasks import app, visit

JOBS = 10


def main(times: int) -> None:
    """The worker counts how long each job has waited."""
    with app:
        for _ in range(times):
            sent = time.monotonic_ns()
            for job in visit.enqueue_many([{"tenant": "small", "sent": sent}] * JOBS):
                job.result(timeout="60s")


main(int(sys.argv[1]))
