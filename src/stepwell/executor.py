"""Run one handler and say how it went. Knows no SQL, no clock and no policy but the task's own."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

from stepwell.codec import BadResult
from stepwell.context import Context
from stepwell.errors import BadArgs
from stepwell.events import BackoffFailed, log
from stepwell.outcome import Cancel, Cancelled, Fail, Failed, Outcome, RetryIn, Snooze, Snoozed, Succeeded
from stepwell.task import Task

_BACKOFF_FAILED_PAUSE = 60.0
_LONGEST_MESSAGE = 10_000
_LONGEST_TRACEBACK = 60_000


async def execute(task: Task[..., Any], args: str, ctx: Context, max_result_size: int) -> Outcome:
    """Run a coroutine function."""
    try:
        positional, named = _arguments(task, args, ctx)
        result = await task.fn(*positional, **named)
        return Succeeded(task.codec.encode_result(result, max_result_size))
    except BaseException as error:
        return outcome_of(error, task, ctx.attempt)


def execute_plain(task: Task[..., Any], args: str, ctx: Context, max_result_size: int) -> Outcome:
    """Run a plain function, in whatever thread or process this is."""
    try:
        positional, named = _arguments(task, args, ctx)
        result = task.fn(*positional, **named)
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            result.close()
            kind = "coroutine" if inspect.iscoroutine(result) else "generator"
            raise BadResult(f"task {task.name!r} returned a {kind}: declare it as 'async def', or return a value")
        return Succeeded(task.codec.encode_result(result, max_result_size))
    except BaseException as error:
        return outcome_of(error, task, ctx.attempt)


def outcome_of(error: BaseException, task: Task[..., Any], attempt: int) -> Outcome:
    """What an exception that left a handler means."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Cancel():
            return Cancelled(_message(error) or None)
        case BadArgs() if _raised_by_us(error):
            return _failed("bad_args", error, None)
        case BadResult():
            return _failed("bad_result", error, None)
        case Fail():
            return _failed("error", error, None)
        case RetryIn():
            return _failed("error", error, error.delay)
        case _:
            return _failed("error", error, retry_delay(error, task, attempt) if task.retry.allows(error) else None)


def _arguments(task: Task[..., Any], args: str, ctx: Context) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional, named = task.codec.decode_args(args)
    if task.codec.context_parameter is not None:
        named[task.codec.context_parameter] = ctx
    return positional, named


def _raised_by_us(error: BadArgs) -> bool:
    """Whether the job's own args were bad, and not those of something its handler enqueued."""
    frames = traceback.extract_tb(error.__traceback__)
    return len(frames) > 1 and frames[1].name == "_arguments"


def retry_delay(error: BaseException, task: Task[..., Any], attempt: int) -> float:
    """The pause before the next try. A backoff function of the user's that fails must not lose the job for that."""
    try:
        return task.retry.delay(attempt, error)
    except Exception as own:
        log(BackoffFailed(task.name, f"{type(own).__name__}: {_message(own)}", _BACKOFF_FAILED_PAUSE))
        return _BACKOFF_FAILED_PAUSE


def _failed(reason: str, error: BaseException, delay: float | None) -> Failed:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    # The first frame is this file's own.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    try:
        trace = "".join(traceback.format_exception(kind, error, frames))
    except Exception:
        trace = "".join(traceback.format_tb(frames))
    if len(trace) > _LONGEST_TRACEBACK:
        half = _LONGEST_TRACEBACK // 2
        trace = f"{trace[:half]}\n... {len(trace) - 2 * half} characters left out ...\n{trace[-half:]}"
    return Failed(reason, storable(name), storable(_message(error)), storable(trace), delay)


def _message(error: BaseException) -> str:
    try:
        return storable(str(error))[:_LONGEST_MESSAGE]
    except Exception as own:
        return f"(its message cannot be shown: str() raised {type(own).__name__})"


def storable(text: str) -> str:
    """Text as Postgres can keep it: no NUL, no half surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
