"""Django's `Task` with the options of Stepwell: `@task(retry=Retry(5), unique="{user_id}")`.

From Django 6.1 on, and with the package django-tasks, `@task` takes these options. Django 6.0 refuses them there, and
they are given to `using(...)`.
"""
# pyright: basic

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from stepwell.contrib.django.tasks_api import Task
from stepwell.values.admission import Fair, Limit
from stepwell.values.duration import Duration
from stepwell.values.policy import Keep
from stepwell.values.public_call import public_call
from stepwell.values.rate import Rate
from stepwell.values.retry import Retry
from stepwell.values.unique import OnConflict, Unique


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwellTask(Task):
    """A task of a Stepwell backend. Its options are those of `@app.task`, and None or empty means the app's own."""

    retry: Retry | None = None
    timeout: Duration | None = None
    timeout_grace: Duration = "5s"
    keep: Keep | None = None
    keep_failed: Keep | None = None
    unique: str | Literal[True] | Unique | None = None
    on_conflict: OnConflict | None = None
    limit: Limit | None = None
    limits: Sequence[Limit] = ()
    rate: Rate | None = None
    rates: Sequence[Rate] = ()
    fair: str | Fair | None = None
    of_job: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """The options that `using` was given, which hold for single jobs."""

    @public_call("using")
    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        unique: str | Unique | None = None,
    ) -> StepwellTask:
        """Return the same task with these options for its jobs: Django's own, and those of Stepwell's `using`."""
        django = {"priority": priority, "queue_name": queue_name, "run_after": run_after, "backend": backend}
        own = {
            "metadata": metadata, "max_attempts": max_attempts, "retry": retry, "timeout": timeout, "keep": keep,
            "keep_failed": keep_failed, "unique": unique,
        }  # fmt: skip
        given = {name: value for name, value in own.items() if value is not None}
        changed = {name: value for name, value in django.items() if value is not None}
        # `replace` calls the backend's validate_task, which refuses wrong options here, and not at the enqueue.
        return replace(self, **changed, of_job={**self.of_job, **given})
