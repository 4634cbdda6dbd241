"""The app whose tasks are measured."""

from __future__ import annotations

from celery import Celery
from program import REDIS, open_tally

# Celery has its own name for a Redis on a Unix socket.
app = Celery("tasks", broker=REDIS.replace("unix://", "redis+socket://"))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, worker_disable_rate_limits=True)
tally = open_tally()


@app.task
def noop() -> None:
    """Nothing."""
    tally.hit()


@app.task
def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)
