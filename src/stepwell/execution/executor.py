"""Run one handler and say how it went. Knows no SQL, no clock and no policy but the task's own."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from typing import Any, Protocol, cast

import msgspec

from stepwell.durable.backoff import pause_after
from stepwell.durable.context import Context
from stepwell.durable.effects import ThreadEffects, finish
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.journal import Journal
from stepwell.durable.run_state import RunState
from stepwell.durable.saved_error import ErrorOrigin, origin_of
from stepwell.durable.signals import Lost, StopReplay, Suspend
from stepwell.durable.sync_context import SyncContext
from stepwell.durable.undo import undo_all
from stepwell.error_text import error_message, error_name, format_traceback
from stepwell.errors import AmbiguousKey, BadArgs, BadValue, MisfitArgs, TooManySteps
from stepwell.jobs.task import Task
from stepwell.values.outcome import (
    Cancel,
    Cancelled,
    Fail,
    Failed,
    Misfit,
    Outcome,
    RetryIn,
    Settled,
    Snooze,
    Snoozed,
    Suspended,
    Undone,
)
from stepwell.values.retry import Retry
from stepwell.values.step import NewStep

_TURNS = 5


class HasRetry(Protocol):
    """A task, or a step of a chain."""

    @property
    def name(self) -> str: ...
    @property
    def retry(self) -> Retry: ...


class _Wait(msgspec.Struct):
    steps: list[dict[str, Any]]
    groups: list[list[str]]
    at_once: bool


async def execute(task: Task[..., Any], args: str, ctx: JobContext, max_result_size: int) -> Outcome:
    """Run a coroutine function."""
    run = run_of(ctx)
    try:
        positional, named = _arguments(task, args, ctx)
        result = await task.fn(*positional, **named)
        if not isinstance(ctx, Context) or not run.took_steps:
            await _refuse_open(run)
            return task.outcome_of_result(result, max_result_size)
        await run.all_spawned()
        if not run.journal.undoing and run.journal.leaving is None:
            await _refuse_open(run)
            run.journal.close()
            return task.outcome_of_result(result, max_result_size)
        error: BaseException = run.journal.leaving or StopReplay()
    except BaseException as raised:
        error = raised
    run.let_go()
    if not isinstance(ctx, Context) or not run.took_steps:
        return outcome_of(error, task, ctx.attempt)
    try:
        if run.journal.undoing and not isinstance(error, Lost | Suspend | asyncio.CancelledError):
            await undo_all(run.effects, max_result_size, task.retry)
            return Undone()
        # What was spawned was spawned, however the run ends; unless it was told to end now.
        if not isinstance(error, Lost | asyncio.CancelledError):
            await run.all_spawned()
    except BaseException as raised:
        error = raised
    finally:
        run.journal.close()
    return outcome_of(error, task, run.counted_attempt, run.journal)


async def _refuse_open(run: RunState) -> None:
    run.refuse_unused()
    if run.left_open:
        # What was cancelled a moment ago needs one more turn of the event loop to end, or a few.
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        run.refuse_open()


def execute_plain(task: Task[..., Any], args: str, ctx: JobContext, max_result_size: int) -> Outcome:
    """Run a plain function, in whatever thread or process this is."""
    run = run_of(ctx)
    try:
        positional, named = _arguments(task, args, ctx)
        result = task.fn(*positional, **named)
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            result.close()
            kind = "coroutine" if inspect.iscoroutine(result) else "generator"
            raise BadValue(f"task {task.name!r} returned a {kind}: declare it as 'async def', or return a value")
        if not run.took_steps:
            return task.outcome_of_result(result, max_result_size)
        if not run.journal.undoing and run.journal.leaving is None:
            run.refuse_unused()
            run.journal.close()
            return task.outcome_of_result(result, max_result_size)
        error: BaseException = run.journal.leaving or StopReplay()
    except BaseException as raised:
        error = raised
    if not isinstance(ctx, SyncContext) or not run.took_steps:
        return outcome_of(error, task, ctx.attempt)
    try:
        if run.journal.undoing and not isinstance(error, Lost | Suspend):
            effects = ThreadEffects(run.journal, run.effects.backend)
            finish(undo_all(effects, max_result_size, task.retry))
            return Undone()
    except BaseException as raised:
        error = raised
    finally:
        run.journal.close()
    return outcome_of(error, task, run.counted_attempt, run.journal)


def outcome_of(error: BaseException, task: HasRetry, attempt: int, journal: Journal | None = None) -> Outcome:
    """What an exception that left a handler means."""
    outcome = _judge(error, task, attempt, journal)
    if not isinstance(outcome, Failed):
        return outcome
    step = _step_of(error)
    if step is None:
        return msgspec.structs.replace(outcome, attempt=attempt)
    return msgspec.structs.replace(outcome, attempt=attempt, step=step.key, beside=step.beside)


def _judge(error: BaseException, task: HasRetry, attempt: int, journal: Journal | None) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Cancel():
            return Cancelled(error_message(error) or None)
        case MisfitArgs() if _raised_by_us(error):
            return Misfit(_failed("bad_args", error, None))
        case BadArgs() if _raised_by_us(error):
            return _failed("bad_args", error, None)
        case BadValue():
            return _failed("bad_result", error, None)
        # Of the last two another try would come to no other end, or to a worse one.
        case Fail() | AmbiguousKey() | TooManySteps():
            return _failed("error", error, None)
        case RetryIn():
            return _failed("error", error, error.delay)
        case Lost():
            return Settled(committed=False)
        case BaseExceptionGroup() if (suspends := _only_suspends(error)) and journal is not None:
            return _suspended(Suspend.all(suspends), journal)
        case Suspend() if journal is not None:
            return _suspended(error, journal)
        case _:
            step = _step_of(error)
            # A step that has been tried as often as it may is not tried again with the job.
            again = not (step and step.final) and task.retry.allows(error)
            return _failed(
                "error", error, pause_after(error, task.retry, attempt, task.name, journal) if again else None
            )


def _step_of(error: BaseException) -> ErrorOrigin | None:
    """The step that it came from; of a group, as `asyncio.TaskGroup` raises it, the first that has one."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next((step for one in group.exceptions if (step := _step_of(one)) is not None), None)
    return origin_of(error)


def _suspended(suspend: Suspend, journal: Journal) -> Suspended:
    journal.keep_all_errors()
    steps = [_as_json(step) for step in journal.notes.and_steps(*suspend.steps)]
    return Suspended(msgspec.json.encode(_Wait(steps, suspend.groups, suspend.at_once)).decode())


def _as_json(step: NewStep) -> dict[str, Any]:
    said = {name: value for name, value in msgspec.structs.asdict(step).items() if value is not None}
    return said if step.value is None else {**said, "value": msgspec.Raw(step.value)}


def _only_suspends(group: BaseExceptionGroup[BaseException]) -> list[Suspend]:
    """The suspensions in a group, as `asyncio.TaskGroup` raises them; none if there is an error among them."""
    found: list[Suspend] = []
    for error in group.exceptions:
        inner = [error] if isinstance(error, Suspend) else []
        if isinstance(error, BaseExceptionGroup):
            inner = _only_suspends(error)  # pyright: ignore[reportUnknownArgumentType]
        if not inner:
            return []
        found += inner
    return found


def _arguments(task: Task[..., Any], args: str, ctx: JobContext) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional, named = task.codec.decode_args(args)
    if task.codec.context_parameter is not None:
        named[task.codec.context_parameter] = ctx
    return positional, named


def _raised_by_us(error: BadArgs) -> bool:
    """Whether the job's own args were bad, and not those of something its handler enqueued."""
    frames = traceback.extract_tb(error.__traceback__)
    return len(frames) > 1 and frames[1].name == "_arguments"


def _failed(reason: str, error: BaseException, delay: float | None) -> Failed:
    # The first frame is this file's own.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    # Not by assignment, which the class may refuse: a frozen dataclass does.
    BaseException.with_traceback(error, frames)
    trace = format_traceback(error, frames)
    return Failed(reason, error_name(error), error_message(error), trace, delay, error=error)
