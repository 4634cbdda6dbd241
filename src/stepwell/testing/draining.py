"""Run all due jobs, and return when none is left."""

from __future__ import annotations

import asyncio

from stepwell.app import App
from stepwell.postgres.queries.testing import admit_blocked, is_app_busy
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.duration import Duration, seconds
from stepwell.worker import Worker

_CHECK_EVERY = 0.005


class _Drainer(Worker):
    """A worker that starts batches without waiting for more jobs: none may come."""

    _batches_wait = False


def drain(app: App, *, concurrency: int = 10, timeout: Duration = "30s") -> int:
    """Run a worker until none of the app's jobs is ready, running or overdue, and return the number of runs.

    Delayed jobs, jobs that sleep or wait for an event, and jobs whose limit or rate has no room stay as they are.
    Raises `TimeoutError` if draining takes longer than `timeout`.
    """
    refuse_in_event_loop("drain", "adrain")
    return asyncio.run(adrain(app, concurrency=concurrency, timeout=timeout))


async def adrain(app: App, *, concurrency: int = 10, timeout: Duration = "30s") -> int:
    """`drain` for async code."""
    named = {queue for task in app.tasks.values() for queue in task.queues} | {app.queue}
    async with (
        asyncio.timeout(seconds(timeout, "timeout")),
        # The worker asks named queues at once, and others once it has found jobs there.
        _Drainer(app, queues=[*sorted(named), "*"], concurrency=concurrency) as worker,
    ):
        while await _is_busy(app):  # noqa: ASYNC110 it polls the database
            await asyncio.sleep(_CHECK_EVERY)
        return worker.runs_ended


async def _is_busy(app: App) -> bool:
    busy = is_app_busy(list(app.tasks), app.owner)
    if (await app.database.afetch(busy))[0]:
        return True
    # Blocked jobs that have room are as good as ready. The worker may admit them at the same moment, hence twice.
    return (await app.database.afetch(admit_blocked()))[0] > 0 or (await app.database.afetch(busy))[0]
