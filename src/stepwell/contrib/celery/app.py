"""`Celery(app)`: Celery's decorator for the tasks of an `App`, and `shared_task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from stepwell.app import App
from stepwell.contrib.celery.canvas_job import NAME, run_canvas
from stepwell.contrib.celery.options import (
    CallOptions,
    TaskOptions,
    call_options,
    check_arguments,
    check_names,
    task_options,
)
from stepwell.contrib.celery.result import AsyncResult
from stepwell.contrib.celery.task import CeleryTask, handler_of, refused
from stepwell.durable.context import Context
from stepwell.errors import ConfigError
from stepwell.jobs.task import Task
from stepwell.values.retry import Retry

_REFUSED = {
    "conf": "App(...), @app.task(...) and the options of 'stepwell worker'",
    "config_from_object": "App(...), @app.task(...) and the options of 'stepwell worker'",
    "autodiscover_tasks": "imports of your modules with tasks, in the module of the app",
    "add_periodic_task": "@app.schedule(...)",
    "control": "app.pause(...), app.resume(...) and app.stop(...)",
    "signature": "task.signature(...)",
    "worker_main": "'stepwell worker MODULE:APP'",
}
_current: Celery | None = None
_waiting: list[CeleryTask] = []


class Celery:
    """The tasks of an app, written as for Celery. A worker is started for the `App`, as always."""

    def __init__(self, app: App, *, set_as_current: bool = True) -> None:
        global _current
        if not isinstance(app, App):
            raise ConfigError(f"Celery takes an App of Stepwell, not {app!r}: Celery(App('postgresql://...'))")
        if NAME in app.tasks:
            raise ConfigError(
                "this App has a Celery(...) already: make one, in a module that the others import it from"
            )
        self.app = app
        self.tasks: dict[str, CeleryTask] = {}

        async def canvas(ctx: Context, node: dict[str, Any], given: list[Any] | None = None) -> Any:
            return await run_canvas(self, ctx, node, given or [])

        self.canvas: Task[..., Any] = app.task(name=NAME, retry=Retry(max_attempts=1_000_000))(canvas)
        """The task of the jobs that run chains, groups and chords."""
        if set_as_current:
            _current = self
            while _waiting:
                self._register(_waiting.pop())

    def task(self, fn: Callable[..., Any] | None = None, **options: Unpack[TaskOptions]) -> Any:
        """Register a function as a task: `@celery.task`, or with options. Its name is `module.function`, as Celery has
        it, unless `name` is given."""
        check_names("@celery.task", options, TaskOptions)

        def register(fn: Callable[..., Any]) -> CeleryTask:
            return self._register(CeleryTask(fn, options.get("name"), options))

        return register if fn is None else register(fn)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncResult:
        """Enqueue a job of a task by its name, which this app must know."""
        check_arguments("send_task", args, kwargs)
        enqueuer = self.task_named(name).using(**call_options("send_task", options))
        return AsyncResult(enqueuer.enqueue(*args, **(kwargs or {})))

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 as in Celery
        return AsyncResult(self.app.job(task_id))

    def task_named(self, name: str) -> Task[..., Any]:
        if name not in self.app.tasks:
            raise ConfigError(
                f"this app has no task {name!r}: import the module that defines it, or enqueue it in SQL, with "
                "stepwell.enqueue(...)"
            )
        return self.app.tasks[name]

    def _register(self, task: CeleryTask) -> CeleryTask:
        module = self.app.name if task.fn.__module__ == "__main__" else task.fn.__module__
        name = str(task.options.get("name") or f"{module}.{task.name}")
        options = task_options("@celery.task", task.options)
        task.register(self, name, self.app.task(name=name, **options)(handler_of(task)))
        self.tasks[name] = task
        return task

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise refused("Celery", name, _REFUSED)


def shared_task(fn: Callable[..., Any] | None = None, **options: Unpack[TaskOptions]) -> Any:
    """Declare a task of the current app, which may be made later: by `Celery(App(...))`."""
    check_names("@shared_task", options, TaskOptions)

    def register(fn: Callable[..., Any]) -> CeleryTask:
        task = CeleryTask(fn, options.get("name"), options)
        if _current is None:
            _waiting.append(task)
            return task
        return _current._register(task)  # pyright: ignore[reportPrivateUsage]

    return register if fn is None else register(fn)
