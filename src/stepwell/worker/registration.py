"""What a worker tells the database about itself when it registers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from importlib.metadata import version

import msgspec

from stepwell.app import App
from stepwell.jobs.settings import settings_of
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.worker.claiming.pools import Pools


def register_query(app: App, pools: Pools, lease: float) -> Callable[[float, int | None], Query[str]]:
    """Return a function that makes the query. A worker that registers again gives its age and its first number."""
    tasks = {
        name: {
            "max_attempts": task.retry.max_attempts,
            "keep_failed": "Infinity" if task.keep_failed == float("inf") else task.keep_failed,
            "by_queue": task.keep_failed_by_queue,
            "queue": task.queue,
            "priority": task.priority,
        }
        for name, task in app.tasks.items()
    }
    settings = msgspec.json.encode({name: settings_of(task) for name, task in app.tasks.items()}).decode()

    def register(age: float, begun: int | None) -> Query[str]:
        return queries.fleet.register_worker(
            socket.gethostname(),
            os.getpid(),
            version("stepwell"),
            pools.queues,
            msgspec.json.encode(tasks).decode(),
            pools.slots,
            lease,
            age,
            begun,
            app.name,
            app.scheduler.names,
            app.scheduler.stale_after,
            app.owner is not None,
            [task.signature for task in app.tasks.values()],
            settings,
        )

    return register
