"""What the tests of the command line share: how a command ran, and jobs in every state."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from stepwell.calendar.schedule import NewSchedule
from stepwell.calendar.timing import Cron
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.claims import Position
from stepwell.values.job import ClaimedJob, NewJob
from tests.forked import ForkedProcess

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]
Answer = Callable[[str], None]
Start = Callable[..., "ForkedProcess | subprocess.Popen[str]"]


class Jobs:
    """Jobs in every state, made by hand."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def ready(self, task: str = "add", args: str = '{"x": 1}', **options: Any) -> str:
        return str(fetch(self.connection, queries.jobs.enqueue([NewJob(task, args, **options)]))[0].ids[0])

    def worker(
        self,
        *tasks: str,
        queues_: tuple[str, ...] = ("default",),
        lease: float = 60,
        owner: str | None = None,
        named: bool | None = None,
    ) -> str:
        known = json.dumps({task: {"max_attempts": 3, "keep_failed": 3600} for task in tasks})
        query = queries.fleet.register_worker(
            "somewhere", 7, "0.0", list(queues_), known, 5, lease, owner=owner, named=named
        )
        return fetch(self.connection, query)[0]

    def claim(self, task: str = "add") -> ClaimedJob:
        return fetch(self.connection, queries.claims.claim(self.worker(task), ["default"], [Position()], [task], 1))[0]

    def running(self, task: str = "add", **options: Any) -> str:
        self.ready(task, **options)
        return self.claim(task).id

    def succeeded(self, result: str = "3", keep: float = 3600, **options: Any) -> str:
        self.ready(**options)
        job = self.claim(options.get("task", "add"))
        fetch(
            self.connection, queries.outcomes.finish([job.id], [job.epoch], [result], [keep], ["succeeded"], [None], [])
        )
        return job.id

    def failed(
        self, message: str = "boom", delay: float | None = None, frame: str | None = None, **options: Any
    ) -> str:
        self.ready(**options)
        job = self.claim(options.get("task", "add"))
        trace = f"Traceback (most recent call last):\n  the line\nValueError: {message}\n"
        failed = queries.outcomes.fail(
            [job.id], [job.epoch], ["error"], ["ValueError"], [message], [trace], [delay], [3], [3600.0], [None], [],
            frames=[frame],
        )  # fmt: skip
        fetch(self.connection, failed)
        return job.id

    def state(self, job_id: str) -> str:
        return dict(fetch(self.connection, queries.reads.job_states([job_id])))[job_id]


def make_schedule(
    jobs: Jobs, name: str, task: str, *, owner: str = "shop", cron: str = "0 3 * * *", **for_jobs: Any
) -> None:
    """A schedule, as a worker of the app `owner` would have made it."""
    timing = Cron(cron, "Europe/Paris")
    [now] = fetch(jobs.connection, queries.reads.clock())
    schedule = NewSchedule(name, task, '{"x": 1}', "default", 0, timing, "skip", 1, 0.0, **for_jobs)
    fetch(jobs.connection, queries.schedules.put_schedules(owner, [schedule], [timing.after(now)], declared=True))
