"""Take a step: return its saved value, or call its function and save the result.

A saved step runs again only if its arguments have changed and the task is declared with `drift="rerun"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Literal, NoReturn

import msgspec

from stepwell.durable.effects import LONGEST_PAUSE, Effects, saved_text
from stepwell.durable.exits import Suspend
from stepwell.durable.function_info import can_undo, check_value, decode_value, fingerprint, function_info, name_of
from stepwell.durable.journal import Journal, StepEntry, Undo
from stepwell.durable.saved_error import can_be_raised_again, describe_error, saved_error, tag_error
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.errors import ConfigError
from stepwell.errors.text import nearest
from stepwell.telemetry.steps import BackoffFailed
from stepwell.values.duration import Duration, seconds
from stepwell.values.json import encode_value
from stepwell.values.outcome import OUTCOME_EXCEPTIONS, RetryIn
from stepwell.values.policy import check_retry
from stepwell.values.retry import Retry, pause_after
from stepwell.values.sealing import PLAIN, Sealer
from stepwell.values.step import NewStep, StepKind


async def step(
    effects: Effects,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    key: str | None,
    retry: Retry | None,
    timeout: Duration | None,
    undo: Callable[..., Any] | None,
    was: str | None,
) -> Any:
    """Take one step, in async code or in a thread: `ctx.step` and `ctx.map` of both contexts end here."""
    limit = None if timeout is None else seconds(timeout, "timeout")
    journal = effects.journal
    try:
        info = function_info(fn)
        if retry is not None or undo is not None:
            _check_options(info.name, retry, undo)
        entry = journal.enter("step", info.name, key, was)
        mark = fingerprint(args)
        saved = entry.saved
        rerun = saved is not None and journal.drifted(entry, mark)
        if saved is not None and not rerun:
            if saved.error is not None:
                raise saved_error(entry.key, saved.error)
            value = decode_value(fn, entry.key, await saved_text(effects, saved))
            if undo is not None and saved.undo:  # in a fork it is not: the original job compensates the step
                _keep_undo(journal, entry, undo, value, retry)
            return value
        journal.stop_if_undoing()
        if retry is None:
            began = perf_counter()
            try:
                value = await effects.call(fn, args, entry.key, limit, is_async=info.is_async)
            except Exception as error:
                note_failure(journal, entry, "step", error, replaced=rerun)
                raise
        else:
            # The tries of a step that runs again must not be taken for those of its first run.
            tries = f"{entry.key}@{mark}" if rerun else entry.key
            attempt = next_attempt(journal, tries)
            began = perf_counter()
            value = await call_with_retry(
                effects, entry, tries, attempt, fn, args, limit, retry, "step", is_async=info.is_async
            )
        try:
            sealer = effects.backend.sealer
            encoded = encode_step(journal, entry.key, value, effects.backend.max_value_size, sealer)
            # The handler gets the value as a replay will read it, so that what works now works then.
            value = value if info.is_as_saved(value) else check_value(fn, entry.key, sealer.open(encoded))
        except Exception as error:
            note_failure(journal, entry, "step", error, replaced=rerun)
            raise
        await effects.save(
            journal.notes.and_steps(
                NewStep(entry.key, entry.n, "step", encoded, None, mark, since(began), undo is not None, rerun)
            )
        )
    except Suspend as suspend:
        await effects.leave(suspend)
    # Outside the `try`: with `always_replay` this suspends the run, which would look like a suspension caught before.
    journal.was_saved(progress=not rerun)
    if undo is not None:
        _keep_undo(journal, entry, undo, value, retry)
    return value


def refuse_options(fn: Callable[..., Any], options: Mapping[str, Any]) -> NoReturn:
    """Refuse keyword arguments of `ctx.step` that are no options of it: most likely they are meant for the function."""
    name = next(iter(options))
    if hint := nearest(name, ("key", "retry", "timeout", "undo", "was")):
        raise ConfigError(f"ctx.step has no option {name!r}{hint}")
    called = name_of(fn)
    raise ConfigError(
        f"ctx.step has no option {name!r}: give the arguments of {called} by position, or bind them: "
        f"ctx.step(functools.partial({called}, {name}=...), key={called!r})"
    )


def _check_options(name: str, retry: object, undo: object) -> None:
    check_retry(retry, f"step {name!r}: retry")
    if undo is not None and not can_undo(undo):
        raise ConfigError(f"step {name!r}: undo is {undo!r}: give a function that takes the step's value, or nothing")


def _keep_undo(journal: Journal, entry: StepEntry, undo: Callable[..., Any], value: Any, retry: Retry | None) -> None:
    journal.undos.append(Undo(entry.key, entry.n, undo, value, retry))
    journal.stop_if_all_found()


def note_failure(
    journal: Journal, entry: StepEntry, kind: StepKind, error: BaseException, *, replaced: bool = False
) -> None:
    """Note that a step failed: if the handler catches the error, every later run meets it again."""
    if isinstance(error, Exception):
        if not isinstance(error, OUTCOME_EXCEPTIONS):
            step = NewStep(entry.key, entry.n, kind, error=describe_error(error), replaced=replaced)
            journal.notes.add_error(journal.branch.prefix, step, kept=can_be_raised_again(error))
        tag_error(error, entry.key, final=False)


async def call_with_retry(
    effects: Effects,
    entry: StepEntry,
    tries: str,
    attempt: int,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    limit: float | None,
    retry: Retry,
    kind: Literal["step", "undo"],
    *,
    is_async: bool,
) -> Any:
    """Call a function under a retry policy of its own. The error of the last attempt is saved, and raised."""
    journal = effects.journal
    while True:
        try:
            return await effects.call(fn, args, entry.key, limit, is_async=is_async)
        except Exception as error:
            # A step leaves the retry to its job. An undo does not: the job's attempts are for finding all undos.
            retry_in = kind == "undo" and isinstance(error, RetryIn)
            if isinstance(error, OUTCOME_EXCEPTIONS) and not retry_in:
                raise
            described = describe_error(error)
            allowed = retry_in or retry.allows(error) or isinstance(error, TimeLimitExpired)
            if attempt >= retry.max_attempts or not allowed:
                final = msgspec.structs.replace(described, final=True)
                step = NewStep(entry.key, entry.n, kind, error=final, replaced=entry.saved is not None)
                await effects.save(journal.notes.and_steps(step))
                tag_error(error, entry.key, final=True)
                raise
            delay, wrong = (error.delay, None) if isinstance(error, RetryIn) else pause_after(error, retry, attempt)
            if wrong is not None:
                journal.tell(BackoffFailed, f"step {entry.key!r} of {journal.job.task}", wrong, delay)
            again = NewStep(f"{tries}~{attempt}", journal.next_n(), "retry", error=described)
            attempt += 1
            if delay > LONGEST_PAUSE or journal.always_replay:
                again.pending, again.delay = True, delay
                raise Suspend([[again.key]], [again]) from None
            journal.notes.add(again)
        # Outside the `except`: else the error would be the context of every later one.
        await effects.pause(delay)


def next_attempt(journal: Journal, tries: str) -> int:
    """The number of a step's next attempt, by the saved ones. Raises `Suspend` if that attempt is not due yet."""
    attempt = 1
    while (failed := journal.peek(f"{tries}~{attempt}")) is not None:
        if failed.pending:
            raise Suspend([[failed.key]])
        attempt += 1
    return attempt


def since(began: float) -> float:
    # Whole microseconds: writing out the digits of noise behind them takes longer than many a step.
    return int((perf_counter() - began) * 1_000_000) / 1_000_000


def encode_step(journal: Journal, key: str, value: Any, most: int, sealer: Sealer = PLAIN) -> str:
    """The value of a step as JSON. Raises `BadValue`, which names the step, if it cannot be stored."""
    if value is None:
        return "null"  # too short to be counted
    what = "step {!r} of task {!r} returned"
    encoded = encode_value(value, most, "App(max_result_size=...)", what, key, journal.job.task, sealer=sealer)
    journal.count_bytes(encoded, key)
    return encoded
