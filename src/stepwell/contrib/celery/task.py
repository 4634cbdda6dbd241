"""A task as Celery has it: `add.delay(1, 2)`, `add.apply_async((1, 2), countdown=10)`, `add.s(1)`, `self.retry()`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from stepwell.contrib.celery.canvas import Signature
from stepwell.contrib.celery.options import CallOptions, call_options, check_arguments, in_utc
from stepwell.contrib.celery.result import AsyncResult
from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import ConfigError
from stepwell.errors.text import error_message
from stepwell.jobs.task import Task
from stepwell.values.outcome import RetryIn

if TYPE_CHECKING:
    from stepwell.contrib.celery.app import Celery

_REFUSED = {
    "apply": "call the task, which runs its function here",
    "retry": "declare it with bind=True and call self.retry()",
    "map": "group(task.s(item) for item in items)",
    "starmap": "group(task.s(*item) for item in items)",
    "chunks": "a task with batch= of Stepwell's own",
    "update_state": "self.ctx.progress(done, total, message)",
    "delay_on_commit": 'apply_async(connection="default"), which is part of the transaction',
    "apply_async_on_commit": 'apply_async(connection="default"), which is part of the transaction',
    "subtask": "task.signature(...)",
    "replace": "a durable function of Stepwell's own, which spawns children",
}


class CeleryTask:
    """A function as a task of Celery's kind. Calling it calls the function here."""

    def __init__(self, fn: Callable[..., Any], name: str | None, options: Mapping[str, Any]) -> None:
        if not callable(fn):
            raise ConfigError(f"a task is made of a function, not of {fn!r}; options go by name")
        self.fn = fn
        self.options = options
        self.bound = bool(options.get("bind"))
        self._name = name
        self._celery: Celery | None = None
        self._stepwell: Task[..., Any] | None = None
        update_wrapper(self, fn, updated=())  # an attribute of the function is none of the task

    def register(self, celery: Celery, name: str, stepwell: Task[..., Any]) -> None:
        self._celery, self._name, self._stepwell = celery, name, stepwell

    @property
    def name(self) -> str:
        return self._name or self.fn.__name__

    @property
    def celery(self) -> Celery:
        if self._celery is None:
            raise ConfigError(f"shared task {self.name!r} belongs to no app yet: make one with Celery(App(...)) first")
        return self._celery

    @property
    def stepwell(self) -> Task[..., Any]:
        """The task of Stepwell that it is."""
        _ = self.celery
        assert self._stepwell is not None
        return self._stepwell

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (
            self.fn(RunningTask(self, None, args, kwargs), *args, **kwargs) if self.bound else self.fn(*args, **kwargs)
        )

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue a job with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncResult:
        """Enqueue a job with options. `connection` is not a broker's: with it, the job exists if and only if that
        connection's transaction commits."""
        check_arguments("apply_async", args, kwargs)
        enqueuer = self.stepwell.using(**call_options("apply_async", options))
        return AsyncResult(enqueuer.enqueue(*(args or ()), **(kwargs or {})))

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """A call of this task, not yet made. In a chain, the result of the previous task comes before its arguments."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """The same, without the result of the previous task."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> Signature:
        return Signature(self, tuple(args), dict(kwargs or {}), immutable=immutable).set(**options)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 as in Celery
        return AsyncResult(self.celery.app.job(task_id))

    def __repr__(self) -> str:
        return f"<CeleryTask {self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise refused("a task", name, _REFUSED)


@dataclass(frozen=True, slots=True)
class Request:
    """`self.request` of a bound task: the run as Celery describes it."""

    id: str | None
    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    retries: int
    called_directly: bool


class RunningTask:
    """`self` of a bound task during a run. `ctx` is Stepwell's own context, None in a direct call."""

    def __init__(
        self, task: CeleryTask, ctx: Context | SyncContext | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.task = task
        self.ctx: Any = ctx
        retries = 0 if ctx is None else ctx.attempt - 1
        self.request = Request(None if ctx is None else ctx.id, task.name, args, kwargs, retries, ctx is None)

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def max_retries(self) -> int:
        return self.task.stepwell.retry.max_attempts - 1

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
    ) -> NoReturn:
        """Run the job again, after `countdown` seconds or at `eta`. After the last retry it raises `exc` instead. It
        always raises: `raise self.retry(...)` and `self.retry(...)` are the same."""
        if self.ctx is None:
            raise exc or ConfigError(f"task {self.name!r} was called directly, so there is no job to retry")
        if max_retries is not None and max_retries > self.max_retries:
            raise ConfigError(
                f"self.retry(max_retries={max_retries}) of task {self.name!r} is more than its own {self.max_retries}: "
                "raise that, in @celery.task(max_retries=...)"
            )
        most = self.max_retries if max_retries is None else max_retries
        if self.request.retries >= most:
            raise exc or RuntimeError(f"task {self.name!r} has been retried {most} times")
        raise RetryIn(self._delay(countdown, eta), "" if exc is None else error_message(exc)) from exc

    def _delay(self, countdown: float | None, eta: datetime | None) -> float:
        if eta is not None:
            return max((in_utc("self.retry", eta) - datetime.now(UTC)).total_seconds(), 0.0)
        given = self.task.options.get("default_retry_delay", 180)
        return max(float(given if countdown is None else countdown), 0.0)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _REFUSED:
                raise refused("self", name, _REFUSED)
            return getattr(self.task, name)


def handler_of(task: CeleryTask) -> Callable[..., Any]:
    """Return the function for `app.task`. A bound one gets the context in place of `self`."""
    if not task.bound:
        return task.fn
    fn, signature = task.fn, inspect.signature(task.fn)
    parameters = list(signature.parameters.values())
    if not parameters:
        raise ConfigError(f"task {task.name!r} has bind=True: its first parameter is 'self'")
    kind = Context if inspect.iscoroutinefunction(fn) else SyncContext
    own = inspect.Parameter("stepwell_ctx", inspect.Parameter.KEYWORD_ONLY, annotation=kind)

    async def handle(*args: Any, stepwell_ctx: Any, **kwargs: Any) -> Any:
        return await fn(RunningTask(task, stepwell_ctx, args, kwargs), *args, **kwargs)

    def handle_plain(*args: Any, stepwell_ctx: Any, **kwargs: Any) -> Any:
        return fn(RunningTask(task, stepwell_ctx, args, kwargs), *args, **kwargs)

    made: Any = update_wrapper(handle if kind is Context else handle_plain, fn)
    made.__signature__ = signature.replace(parameters=[*parameters[1:], own])
    annotations = {name: value for name, value in fn.__annotations__.items() if name != parameters[0].name}
    made.__annotations__ = {**annotations, "stepwell_ctx": kind}
    return made


def refused(what: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    hint = f": write {hints[name]}" if name in hints else ""
    return AttributeError(f"{what} has no {name!r} in Stepwell{hint}")
