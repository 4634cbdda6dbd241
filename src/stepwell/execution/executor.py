"""Run one handler and return its outcome. Knows no SQL, no clock and no policy but the task's own."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

import msgspec

from stepwell.durable.concurrency import end_cut_off
from stepwell.durable.effects import Effects, ThreadEffects, finish, run_on_loop
from stepwell.durable.exits import Lost, StopReplay, Suspend, wait_text
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.journal import Journal
from stepwell.durable.recorded import save_draws
from stepwell.durable.run_state import RunState
from stepwell.durable.saved_error import ErrorOrigin, origin_of
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.durable.unawaited import Unawaited
from stepwell.durable.undo import undo_all
from stepwell.errors import AmbiguousKey, BadArgs, BadValue, MisfitArgs, NotUndone, TooManySteps
from stepwell.errors.text import (
    error_line_of,
    error_message,
    error_name,
    format_traceback,
    frames_of_handler,
    user_frame,
)
from stepwell.jobs.task import Task
from stepwell.resources.opened import injected
from stepwell.values.outcome import (
    Cancel,
    Cancelled,
    Fail,
    Failed,
    Misfit,
    NothingToWrite,
    Outcome,
    RateLimited,
    RetryIn,
    Snooze,
    Snoozed,
    Suspended,
    Undone,
)
from stepwell.values.retry import Retry, pause_after
from stepwell.values.step import LEAST_UNDO_ATTEMPTS, is_undoing

_TURNS = 5
_MOST_NAMED = 10


class HasRetry(Protocol):
    """A task, or a step of a chain."""

    @property
    def name(self) -> str: ...
    @property
    def retry(self) -> Retry: ...


async def execute(task: Task[..., Any], args: str, ctx: JobContext, max_result_size: int) -> Outcome:
    try:
        positional, named = _arguments(task, args, ctx)
    except BaseException as error:
        return outcome_of_args(error, task, ctx.attempt)
    run = run_of(ctx)
    try:
        result = await task.fn(*positional, **named)
        if run.took_steps:
            await run.all_spawned()
        error = _left_early(run)
        if error is None:
            if (unawaited := run.unawaited) is not None:
                await _refuse_open(unawaited, run.job.task)
            if _has_to_write(run, None):
                await _end_attempt(run, None)
            _close(run)
            return task.outcome_of_result(result, max_result_size)
    except BaseException as raised:
        error = raised
    if (unawaited := run.unawaited) is not None:
        unawaited.close()
    try:
        if _must_undo(run, error):
            return await _compensate(run, run.effects, task, error, max_result_size)
        # Children that the handler has spawned are enqueued however the run ends, unless it was told to end now.
        if run.took_steps and not isinstance(error, Lost | asyncio.CancelledError):
            await run.all_spawned()
            await _end_attempt(run, error)
    except BaseException as raised:
        error = raised
    finally:
        _close(run)
    return _outcome_of_run(error, task, ctx)


def execute_plain(task: Task[..., Any], args: str, ctx: JobContext, max_result_size: int) -> Outcome:
    try:
        positional, named = _arguments(task, args, ctx)
    except BaseException as error:
        return outcome_of_args(error, task, ctx.attempt)
    run = run_of(ctx)
    try:
        result = task.fn(*positional, **named)
        error = _left_early(run)
        if error is None:
            if (unawaited := run.unawaited) is not None:
                unawaited.refuse_unused(run.job.task)
            if _has_to_write(run, None):
                run_on_loop(run.effects.backend, lambda: _end_attempt(run, None))
            _close(run)
            return task.outcome_of_result(result, max_result_size)
    except BaseException as raised:
        error = raised
    try:
        if _must_undo(run, error):
            effects = ThreadEffects(run.journal, run.effects.backend)
            return finish(_compensate(run, effects, task, error, max_result_size))
        if _has_to_write(run, error):
            failed = error
            run_on_loop(run.effects.backend, lambda: _end_attempt(run, failed))
    except BaseException as raised:
        error = raised
    finally:
        _close(run)
    return _outcome_of_run(error, task, ctx)


def _arguments(task: Task[..., Any], args: str, ctx: JobContext) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional, named = task.codec.decode_args(args)
    if task.codec.context_parameter is not None:
        named[task.codec.context_parameter] = ctx
    if task.codec.injected:
        named |= injected(task.codec.injected, task.name)
    return positional, named


def _left_early(run: RunState) -> BaseException | None:
    """Why the return of a handler is not its result: it is being undone, or caught the exception that suspends it."""
    if not run.took_steps and not _is_undoing(run):
        return None
    return run.journal.leaving or (StopReplay() if run.journal.undoing else None)


def _is_undoing(run: RunState) -> bool:
    return run.journal.undoing if run.took_steps else is_undoing(run.job.journal)


async def _refuse_open(unawaited: Unawaited, task: str) -> None:
    unawaited.refuse_unused(task)
    if unawaited.any_open:
        # A task that was cancelled a moment ago needs one more turn of the event loop to end, or a few.
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        unawaited.refuse_open(task)


def _must_undo(run: RunState, error: BaseException) -> bool:
    """Whether this replay only collects undos, and has come to its end. Ctrl-C only cuts it off."""
    cut_off = isinstance(error, Lost | Suspend | asyncio.CancelledError | KeyboardInterrupt)
    return not cut_off and _is_undoing(run)


async def _compensate(
    run: RunState, effects: Effects, task: HasRetry, error: BaseException, max_result_size: int
) -> Outcome:
    """Run the undos that the replay has collected. If an error ended it before it had found them all, it is tried again
    like any attempt: only then do the undos run in their order."""
    lost = run.journal.lost_undos
    if not lost:
        await undo_all(effects, max_result_size, task.retry)
        return Undone()
    why = "the code does not get that far any more"
    if not _stopped_at_new_step(error):
        outcome = outcome_of(error, task, run.counted_attempt, run.journal)
        if run.stop_asked or isinstance(outcome, Snoozed) or _is_tried_again(run, task, outcome):
            # Without the step: its saved error stays, since the next replay needs it.
            return msgspec.structs.replace(outcome, step=None, beside=()) if isinstance(outcome, Failed) else outcome
        why = f"the replay ended with {error_line_of(error)}"
    await undo_all(effects, max_result_size, task.retry, lost=lost, why_lost=why)
    more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
    not_undone = NotUndone(f"{', '.join(map(repr, lost[:_MOST_NAMED]))}{more}: {why}")
    not_undone.__cause__ = error
    failed = _failed("error", not_undone.with_traceback(error.__traceback__), None)
    return msgspec.structs.replace(failed, attempt=run.counted_attempt)


def _stopped_at_new_step(error: BaseException) -> bool:
    """Whether the replay has gone as far as the saved steps go. An `asyncio.TaskGroup` raises what ends its branches as
    a group."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_stopped_at_new_step, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, StopReplay | Suspend)


def _is_tried_again(run: RunState, task: HasRetry, outcome: Outcome) -> bool:
    most = max(run.job.max_attempts or task.retry.max_attempts, LEAST_UNDO_ATTEMPTS)
    return isinstance(outcome, Failed) and outcome.delay is not None and run.counted_attempt < most


def _has_to_write(run: RunState, error: BaseException | None) -> bool:
    """Whether `_end_attempt` has anything to write. A plain task must ask the worker's loop for it."""
    if not run.took_steps or isinstance(error, Lost | asyncio.CancelledError):
        return False
    notes = run.journal.notes
    return bool(notes.cut_off or (notes and isinstance(error, Exception)))


async def _end_attempt(run: RunState, error: BaseException | None) -> None:
    """Save what the next attempt and a fork need of this one, although it has come to no further step."""
    if run.journal.notes.cut_off:
        if error is None:
            run.journal.keep_caught(run.journal.branch)
        step = None if error is None else _step_of(error)
        await end_cut_off(
            run,
            failed=error is not None and not _suspends_in(error),
            repeated=() if step is None else (step.key, *step.beside),
        )
    if isinstance(error, Exception):
        await save_draws(run.effects)


def _close(run: RunState) -> None:
    if run.took_steps:
        run.journal.close()


def _outcome_of_run(error: BaseException, task: HasRetry, ctx: JobContext) -> Outcome:
    run = run_of(ctx)
    if run.took_steps:
        return outcome_of(error, task, run.counted_attempt, run.journal)
    return outcome_of(error, task, ctx.attempt)


def outcome_of_args(error: BaseException, task: HasRetry, attempt: int) -> Outcome:
    """The outcome of a job whose args cannot be decoded. A misfit waits: a worker with other code may accept it."""
    if not isinstance(error, BadArgs):
        return outcome_of(error, task, attempt)
    failed = _failed("bad_args", error, None)
    return Misfit(failed) if isinstance(error, MisfitArgs) else msgspec.structs.replace(failed, attempt=attempt)


def outcome_of(error: BaseException, task: HasRetry, attempt: int, journal: Journal | None = None) -> Outcome:
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
            return Snoozed(error.delay, isinstance(error, RateLimited))
        case Cancel():
            return Cancelled(error_message(error) or None)
        case BadValue():
            return _failed("bad_result", error, None)
        # AmbiguousKey and TooManySteps come from the handler's code: another attempt would fail in the same way.
        case Fail() | AmbiguousKey() | TooManySteps():
            return _failed("error", error, None)
        case RetryIn():
            return _failed("error", error, error.delay)
        case Lost():
            return NothingToWrite()
        case Suspend() | BaseExceptionGroup() if journal is not None and (suspends := _suspends_in(error)):
            return _suspended(Suspend.all(suspends), journal)
        case _:
            step = _step_of(error)
            # A step that has used up its own attempts is not tried again with the job.
            again = not (step and step.final) and task.retry.allows(error)
            if not again:
                return _failed("error", error, None)
            delay, wrong = pause_after(error, task.retry, attempt)
            return msgspec.structs.replace(_failed("error", error, delay), backoff_error=wrong)


def _step_of(error: BaseException) -> ErrorOrigin | None:
    """The step that the error came from; of a group, as `asyncio.TaskGroup` raises it, the first that has one."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next((step for one in group.exceptions if (step := _step_of(one)) is not None), None)
    return origin_of(error)


def _suspended(suspend: Suspend, journal: Journal) -> Suspended:
    journal.keep_all_errors()
    wait = journal.notes.all_waits(suspend)
    # The notes stay noted, since a caller may ask for the outcome of an error twice.
    return Suspended(wait_text(wait, [*journal.notes.all(), *wait.steps]))


def _suspends_in(error: BaseException) -> list[Suspend]:
    """The suspensions in an error: itself, or all of a group, as `asyncio.TaskGroup` raises them. None if there is
    another error among them."""
    if not isinstance(error, BaseExceptionGroup):
        return [error] if isinstance(error, Suspend) else []
    found = [_suspends_in(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
    return [suspend for suspends in found for suspend in suspends] if all(found) else []


def _failed(reason: str, error: BaseException, delay: float | None) -> Failed:
    # If the error is Stepwell's own, its frames stay, but for the first, which is this file's.
    frames = frames_of_handler(error.__traceback__) or (error.__traceback__ and error.__traceback__.tb_next)
    # Not by assignment: a class may refuse that, as a frozen dataclass does.
    BaseException.with_traceback(error, frames)
    trace = format_traceback(error, frames)
    # Args that do not fit are no fault of a function, and the time limit interrupts any.
    frame = None if isinstance(error, BadArgs | TimeLimitExpired) else user_frame(error, frames)
    return Failed(reason, error_name(error), error_message(error), trace, delay, frame=frame, error=error)
