"""Assert that code under test has enqueued a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import Parameter
from typing import Any

import msgspec

from stepwell.jobs.bulk import CHUNK, list_jobs
from stepwell.jobs.reads import opened_info
from stepwell.jobs.task import Task
from stepwell.postgres.query_plan import run
from stepwell.values.job import JobInfo
from stepwell.values.json import encoder

_SHOWN = 5


def assert_enqueued(
    task: Task[..., Any],
    args: Mapping[str, Any] | None = None,
    *,
    count: int | None = None,
    queue: str | None = None,
) -> list[JobInfo]:
    """Assert that a job of this task was enqueued, and return those jobs, the newest first. Of `args`, only those that
    are given must be equal. An argument that a job was not given has its default. With `count`, there must be
    exactly so many; 0: none. Works in plain and in async tests: it blocks for a moment."""
    __tracebackhide__ = True
    wanted: dict[str, Any] = msgspec.json.decode(encoder.encode(dict(args or {})))
    defaults = _defaults(task, wanted)
    found: list[JobInfo] = []
    newest: list[JobInfo] = []
    total = 0
    for job in _jobs_of(task):
        total += 1
        if total <= _SHOWN:
            newest.append(job)
        given = defaults | job.args
        if all(name in given and given[name] == wanted[name] for name in wanted) and queue in (None, job.queue):
            found.append(job)
    if found if count is None else len(found) == count:
        return found
    asked = f"{task.name}({_said(wanted)})" + (f" in queue {queue!r}" if queue else "")
    number = "no job" if not found else f"{len(found)} jobs" if len(found) > 1 else "1 job"
    others = "".join(f"\n  {job.task}({_said(job.args)}) in queue {job.queue!r}" for job in newest)
    more = f"\n  and {total - _SHOWN} more" if total > _SHOWN else ""
    raise AssertionError(
        f"{number} {asked} was enqueued"
        + ("" if count is None else f", not {count}")
        + (f"; jobs of this task:{others}{more}" if total else "; there are no jobs of this task")
    )


def _jobs_of(task: Task[..., Any]) -> Iterator[JobInfo]:
    """All jobs of the task, the newest first, read page by page."""
    last: JobInfo | None = None
    while True:
        plan = list_jobs("assert_enqueued", {"task": task.name}, CHUNK, last, "30s")
        page = run(plan, task.job_store.database)
        yield from (opened_info(job, task.job_store.sealer) for job in page)
        if len(page) < CHUNK:
            return
        last = page[-1]


def _defaults(task: Task[..., Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the arguments that are asked for, as JSON values. A default that JSON cannot express is none."""
    defaults: dict[str, Any] = {}
    for name, _, default in task.codec.typed_arguments():
        if name in wanted and default is not Parameter.empty:
            with suppress(TypeError, ValueError, OverflowError):
                defaults[name] = msgspec.json.decode(encoder.encode(default))
    return defaults


def _said(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())
