"""A Django task as a task of the app: jobs are stored under its module path."""
# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.app.task_defaults import TaskDefaults
from stepwell.contrib.django.run import handler_of
from stepwell.contrib.django.site_times import to_aware
from stepwell.contrib.django.stored_args import StoredArgs
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.enqueuer import Enqueuer
from stepwell.jobs.task import Task

if TYPE_CHECKING:
    from stepwell.contrib.django.site_app import DjangoApp


class DjangoTask(Task[..., Any]):
    """The jobs of one Django task. `django` is the task as it was declared."""

    def __init__(
        self, job_store: JobStore, defaults: TaskDefaults, app: DjangoApp, django: Any, queues: set[str]
    ) -> None:
        self.django = django
        self.all_queues = {django.queue_name, *queues}
        handler = handler_of(self, app)
        # A plain `Task`, declared for another backend and sent to this one by `using`, has no options.
        given: Any = lambda name, default=None: getattr(django, name, default)  # noqa: E731
        name = django.module_path
        super().__init__(
            job_store,
            handler,
            name=name,
            process=False,
            transaction=False,
            codec=StoredArgs(name, handler, django.func, takes_context=django.takes_context),
            **defaults.options(
                django.queue_name,
                django.priority,
                given("retry"),
                given("timeout"),
                given("timeout_grace", "5s"),
                given("keep"),
                given("keep_failed"),
                unique=given("unique"),
                on_conflict=given("on_conflict"),
                limit=given("limit"),
                limits=given("limits", ()),
                rate=given("rate"),
                rates=given("rates", ()),
                fair=given("fair"),
                task=name,
            ),
        )

    @property
    def queues(self) -> set[str]:
        """The queues of its backends: any of them may be given to `using`."""
        return self.all_queues

    def enqueuer_of(self, task: Any) -> Enqueuer[..., Any]:
        """Return this task with the options of a Django task, as `using` may have changed them."""
        return self.using(
            queue=task.queue_name,
            priority=task.priority,
            run_at=to_aware(task.run_after),
            **getattr(task, "of_job", {}),
        )
