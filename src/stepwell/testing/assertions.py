"""Assert that code under test has enqueued a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.jobs.bulk import list_jobs
from stepwell.jobs.reads import opened_info
from stepwell.jobs.task import Task
from stepwell.postgres.query_plan import run
from stepwell.values.job import JobInfo
from stepwell.values.json import encoder

_MOST = 1000
_SHOWN = 5


def assert_enqueued(
    task: Task[..., Any],
    args: Mapping[str, Any] | None = None,
    *,
    count: int | None = None,
    queue: str | None = None,
) -> list[JobInfo]:
    """Assert that a job of this task was enqueued, and return those jobs, the newest first. Of `args`, only those that
    are given must be equal. With `count`, there must be exactly so many; 0: none. Works in plain and in async tests: it
    blocks for a moment."""
    __tracebackhide__ = True
    wanted: dict[str, Any] = msgspec.json.decode(encoder.encode(dict(args or {})))
    plan = list_jobs("assert_enqueued", {"task": task.name}, _MOST, None, "30s")
    jobs = [opened_info(job, task.job_store.sealer) for job in run(plan, task.job_store.database)]
    found = [
        job
        for job in jobs
        if all(name in job.args and job.args[name] == value for name, value in wanted.items())
        and queue in (None, job.queue)
    ]
    if found if count is None else len(found) == count:
        return found
    asked = f"{task.name}({_said(wanted)})" + (f" in queue {queue!r}" if queue else "")
    number = "no job" if not found else f"{len(found)} jobs" if len(found) > 1 else "1 job"
    others = "".join(f"\n  {job.task}({_said(job.args)}) in queue {job.queue!r}" for job in jobs[:_SHOWN])
    more = f"\n  and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    raise AssertionError(
        f"{number} {asked} was enqueued"
        + ("" if count is None else f", not {count}")
        + (f"; jobs of this task:{others}{more}" if jobs else "; there are no jobs of this task")
    )


def _said(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())
