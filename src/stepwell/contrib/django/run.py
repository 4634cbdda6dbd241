"""Run a Django task as Django does: send its signals, and give it its context and its arguments."""
# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from stepwell.contrib.django.results import to_result
from stepwell.contrib.django.tasks_api import TaskContext, TaskError, TaskResultStatus, normalize_json, signals
from stepwell.durable.context import Context
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import BadValue
from stepwell.errors.text import format_traceback
from stepwell.execution.executor import outcome_of
from stepwell.jobs.reads import info_of
from stepwell.postgres.query_plan import arun, run
from stepwell.values.job import JobInfo
from stepwell.values.outcome import Cancelled, Failed

if TYPE_CHECKING:
    from stepwell.contrib.django.django_task import DjangoTask
    from stepwell.contrib.django.site_app import DjangoApp


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwellTaskContext(TaskContext):
    """Django's context of a task, with Stepwell's: `context.stepwell.step(...)` saves a step."""

    stepwell: Context | SyncContext


def handler_of(task: DjangoTask, app: DjangoApp) -> Callable[..., Any]:
    """Return the function that a worker calls for the jobs of a Django task."""
    return _async_handler(task, app) if iscoroutinefunction(task.django.func) else _handler(task, app)


def _handler(task: DjangoTask, app: DjangoApp) -> Callable[..., Any]:
    def handler(ctx: SyncContext, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None) -> Any:
        result = _running(task, ctx, run(info_of(ctx.id, app.sealer), app.database))
        _send(signals.task_started, task, result)
        try:
            value = task.django.func(*_context(task, ctx, result), *(args or ()), **(kwargs or {}))
            value = _as_json(task, value)
        except BaseException as error:
            if _is_final(error, task, ctx):
                _send(signals.task_finished, task, _failed(result, error))
            raise
        if not run_of(ctx).stop_asked:
            _send(signals.task_finished, task, _succeeded(result, value))
        return value

    return handler


def _async_handler(task: DjangoTask, app: DjangoApp) -> Callable[..., Any]:
    async def handler(ctx: Context, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None) -> Any:
        result = _running(task, ctx, await arun(info_of(ctx.id, app.sealer), app.database))
        await _asend(signals.task_started, task, result)
        try:
            value = await task.django.func(*_context(task, ctx, result), *(args or ()), **(kwargs or {}))
            value = _as_json(task, value)
        except BaseException as error:
            if _is_final(error, task, ctx):
                await _asend(signals.task_finished, task, _failed(result, error))
            raise
        if not run_of(ctx).stop_asked:
            await _asend(signals.task_finished, task, _succeeded(result, value))
        return value

    return handler


def _context(task: DjangoTask, ctx: Context | SyncContext, result: Any) -> tuple[Any, ...]:
    return (StepwellTaskContext(task_result=result, stepwell=ctx),) if task.django.takes_context else ()


def _as_json(task: DjangoTask, value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        raise BadValue(f"task {task.name!r} returned a value that is not JSON: {error}") from error


def _running(task: DjangoTask, ctx: JobContext, info: JobInfo | None) -> Any:
    """The result as it is while this run goes on."""
    if info is None:  # deleted by hand; the outcome of this run will be refused
        raise BadValue(f"job {ctx.id} does not exist any more")
    return to_result(replace(info, state="running"), task.django.backend, task.django)


def _is_final(error: BaseException, task: DjangoTask, ctx: JobContext) -> bool:
    """Whether the job ends with this error. A run that was asked to stop, for whichever reason, ends as its worker
    decides, and not here."""
    state = run_of(ctx)
    if state.stop_asked:
        return False
    own = task.for_job(state.job, lambda _: None)  # the worker has told of it
    outcome = outcome_of(error, own, state.counted_attempt, state.journal if state.took_steps else None)
    if isinstance(outcome, Failed):
        most = state.job.max_attempts or own.retry.max_attempts
        return outcome.delay is None or state.counted_attempt >= most
    return isinstance(outcome, Cancelled)


def _failed(result: Any, error: BaseException) -> Any:
    kind = type(error)
    result.errors.append(
        TaskError(
            exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
            traceback=format_traceback(error, error.__traceback__),
        )
    )
    return _finished(result, TaskResultStatus.FAILED)


def _succeeded(result: Any, value: Any) -> Any:
    object.__setattr__(result, "_return_value", value)
    return _finished(result, TaskResultStatus.SUCCESSFUL)


def _finished(result: Any, status: Any) -> Any:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    return result


def _send(signal: Any, task: DjangoTask, result: Any) -> None:
    # A receiver that fails is logged, and does not fail the job.
    signal.send_robust(type(task.django.get_backend()), task_result=result)


async def _asend(signal: Any, task: DjangoTask, result: Any) -> None:
    await signal.asend_robust(type(task.django.get_backend()), task_result=result)
