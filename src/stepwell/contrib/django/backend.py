"""The backend for Django's tasks: `TASKS = {"default": {"BACKEND": "stepwell.contrib.django.StepwellBackend"}}`.

A job is enqueued through Django's own connection: it exists if and only if the surrounding `atomic` commits. Results
are read there, too, so that a transaction sees the jobs that it has enqueued.
"""
# pyright: basic

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core import checks

from stepwell.contrib.django.django_task import DjangoTask
from stepwell.contrib.django.results import imported_task, result_of
from stepwell.contrib.django.settings import check_backend
from stepwell.contrib.django.site_app import DjangoApp, site_app
from stepwell.contrib.django.site_times import of_site
from stepwell.contrib.django.stepwell_task import StepwellTask
from stepwell.contrib.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
)
from stepwell.errors import StepwellError
from stepwell.postgres.query_plan import run


class StepwellBackend(BaseTaskBackend):
    """Stores the jobs of Django tasks in Postgres. Django makes one per thread; all share the app of the site."""

    task_class = StepwellTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> DjangoApp:
        """The app whose workers run the jobs."""
        return site_app()

    def validate_task(self, task: Any) -> None:
        """Check a task whenever it is declared or given other options, and register it with the app."""
        super().validate_task(task)
        try:
            self._task_of(task).enqueuer_of(task)
        except StepwellError as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a job, in the transaction of Django's connection if one is open. If its unique key is taken, the
        result is that of the job that has it. A job that is no longer kept, or is not of a Django task, has no result:
        then this returns one of the task with the id of that job, of which no more is known."""
        self.validate_task(task)
        job = self._task_of(task).enqueuer_of(task).enqueue(*args, **kwargs)
        if not job.inserted:
            with contextlib.suppress(TaskResultDoesNotExist):
                return self.get_result(str(job.id))
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=TaskResultStatus.READY,
            enqueued_at=of_site(_made_at(job.id)),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        if not job.inserted:
            return result
        # The job is there already: a receiver that fails is logged, and the caller must not believe otherwise.
        signals.task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Read the result of a job. Raises `TaskResultDoesNotExist` if there is no such job of a Django task, or it is
        no longer kept."""
        try:
            job_id = str(UUID(str(result_id)))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        found = run(result_of(job_id, self.alias, self._find, self.app.sealer), self.app.site_database)
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return found

    def check(self, **_: Any) -> Iterable[checks.CheckMessage]:
        return check_backend(self.alias, self.options)

    def _task_of(self, task: Any) -> DjangoTask:
        return self.app.django_task(task, self.queues)

    def _find(self, path: str) -> Task | None:
        known = self.app.tasks.get(path)
        return known.django if isinstance(known, DjangoTask) else imported_task(path)


def _made_at(job_id: UUID) -> datetime:
    """The time in a version 7 uuid. The database makes the id when it stores the job."""
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)
