"""Run what is due, and return when nothing is."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.app import App
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.duration import Duration, seconds
from stepwell.worker import Worker

_LOOK_EVERY = 0.005
_BUSY = """
select exists (
  select from stepwell.job j
  where (j.state in ('ready', 'running') or j.state in ('scheduled', 'waiting') and j.run_at <= stepwell.now())
    and j.task = any (%s) and (j.owner is null or j.owner = %s)
)
"""


def drain(app: App, *, concurrency: int = 10, timeout: Duration = "30s") -> int:
    """Run a worker until none of the app's jobs is due: neither ready, nor running, nor late. What was put off, sleeps
    or waits for an event stays as it is. Returns how many runs there were; raises `TimeoutError` if it takes too long.
    """
    refuse_in_event_loop("drain", "adrain")
    return asyncio.run(adrain(app, concurrency=concurrency, timeout=timeout))


async def adrain(app: App, *, concurrency: int = 10, timeout: Duration = "30s") -> int:
    """The same for async code."""
    named = {queue for task in app.tasks.values() for queue in task.queues} | {app.queue}
    async with (
        asyncio.timeout(seconds(timeout, "timeout")),
        # Those that are known are asked at once, others when something is found there.
        Worker(app, queues=[*sorted(named), "*"], concurrency=concurrency) as worker,
    ):
        while (await app.database.afetch(Query(_BUSY, (list(app.tasks), app.owner), _only)))[0]:  # noqa: ASYNC110 it asks others
            await asyncio.sleep(_LOOK_EVERY)
        return worker.runs_ended


def _only(value: Any) -> Any:
    return value
