"""Compensate the steps of a job that failed or was cancelled. Each compensation is a step, with its own attempts."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from stepwell.durable.effects import Effects
from stepwell.durable.function_info import function_info, takes_one
from stepwell.durable.journal import StepEntry
from stepwell.durable.saved_error import describe_error
from stepwell.durable.step import call_with_retry, encode_step, next_attempt, since
from stepwell.errors import BadValue
from stepwell.errors.text import error_line_of
from stepwell.telemetry.steps import UndoFailed
from stepwell.values.outcome import Cancel, Fail, Snooze
from stepwell.values.retry import Retry
from stepwell.values.step import NewStep


async def undo_all(
    effects: Effects, most: int, default: Retry, *, lost: Sequence[str] = (), why_lost: str = ""
) -> None:
    """Call the collected `undo` functions, the latest step's first. A failure is reported, and the others still run.

    `lost`: the keys of the steps whose `undo` was not found.
    """
    journal = effects.journal
    journal.undoing = False  # from here on steps run again
    for key in lost:
        journal.tell(UndoFailed, key, why_lost)
    for undo in sorted(journal.undos, key=lambda undo: undo.n, reverse=True):
        key = f"undo:{undo.key}"
        if journal.peek(key) is not None:
            continue
        entry = StepEntry(key, journal.next_n(), None)
        attempt = next_attempt(journal, key)
        args = (undo.value,) if takes_one(undo.fn) else ()
        is_async = function_info(undo.fn).is_async
        began = perf_counter()
        try:
            value = await call_with_retry(
                effects, entry, key, attempt, undo.fn, args, None, undo.retry or default, "undo", is_async=is_async
            )
            encoded = encode_step(journal, key, value, most)
        except Snooze:
            raise  # the job is snoozed, and its next run comes back to this undo
        except Exception as error:
            journal.tell(UndoFailed, undo.key, error_line_of(error))
            if isinstance(error, Fail | Cancel | BadValue):
                step = NewStep(key, entry.n, "undo", error=describe_error(error))
                await effects.save(journal.notes.and_steps(step))
            continue
        step = NewStep(key, entry.n, "undo", encoded, seconds=since(began))
        await effects.save(journal.notes.and_steps(step))
