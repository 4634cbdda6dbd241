"""Read a job as Django's `TaskResult`."""
# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from stepwell.contrib.django.site_times import of_site
from stepwell.contrib.django.tasks_api import InvalidTask, Task, TaskError, TaskResult, TaskResultStatus
from stepwell.jobs.reads import info_of
from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.job import Failure, JobInfo
from stepwell.values.sealing import Sealer

_STATUS = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_CANCELLED = "stepwell.JobCancelled"
# A worker that is unknown because the failure of its attempt is no longer kept.
_UNKNOWN = "unknown"


def result_of(job_id: str, alias: str, find: Callable[[str], Any], sealer: Sealer) -> QueryPlan[Any]:
    """Read a job as a `TaskResult` of the backend `alias`; None: there is no such job, or it is not of a Django task.
    `find` returns the Django task of a module path, or None."""
    info = yield from info_of(job_id, sealer)
    task = None if info is None else find(info.task)
    return None if info is None or task is None else to_result(info, alias, task)


def to_result(info: JobInfo, alias: str, task: Any) -> Any:
    status = _STATUS.get(info.state, TaskResultStatus.READY)
    starts = [at for at in (*(failure.claimed_at for failure in info.failures), info.claimed_at) if at is not None]
    result = new_result(
        _as_enqueued(task, alias, info),
        info,
        alias,
        status=status,
        started_at=of_site(min(starts, default=None)),
        last_attempted_at=of_site(max(starts, default=None)),
        finished_at=of_site(info.finished_at),
        errors=_errors(info),
        worker_ids=_worker_ids(info),
    )
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", info.result)
    return result


def new_result(task: Any, info: JobInfo, alias: str, **fields: Any) -> Any:
    return TaskResult(
        task=task,
        id=str(info.id),
        enqueued_at=of_site(info.enqueued_at),
        args=info.args.get("args") or [],
        kwargs=info.args.get("kwargs") or {},
        backend=alias,
        **fields,
    )


def imported_task(path: str) -> Any:
    """Return the Django task at a module path; None: there is none in this code."""
    try:
        found = import_string(path)
    except (ImportError, ValueError):
        return None
    return found if isinstance(found, Task) else None


def _as_enqueued(task: Any, alias: str, info: JobInfo) -> Any:
    waits = info.state == "scheduled" and not info.failures
    try:
        return task.using(
            priority=info.priority,
            queue_name=info.queue,
            backend=alias,
            run_after=of_site(info.run_at) if waits else None,
        )
    except InvalidTask:  # a queue or priority that the backend no longer takes
        return task


def _errors(info: JobInfo) -> list[Any]:
    errors = [
        TaskError(exception_class_path=_class_path(failure), traceback=failure.traceback or failure.message)
        for failure in info.failures
    ]
    if info.state == "cancelled":
        errors.append(TaskError(exception_class_path=_CANCELLED, traceback=info.error or "cancelled"))
    return errors


def _class_path(failure: Failure) -> str:
    return failure.type if "." in failure.type else f"builtins.{failure.type}"


def _worker_ids(info: JobInfo) -> list[str]:
    """One for each attempt, since Django counts attempts by them."""
    ids = [str(failure.worker_id or _UNKNOWN) for failure in info.failures]
    if info.state in ("running", "succeeded"):
        ids.append(str(info.worker_id or _UNKNOWN))
    return [_UNKNOWN] * (info.attempt - len(ids)) + ids
