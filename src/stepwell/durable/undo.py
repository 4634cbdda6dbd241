"""Undo what a job has done, when it has failed or was cancelled: each a step of its own, with its own tries."""

from __future__ import annotations

import time

from stepwell.durable.effects import Plan, RunFunction, Save
from stepwell.durable.function_info import look_at, takes_one
from stepwell.durable.journal import Journal, Place
from stepwell.durable.saved_error import describe_error
from stepwell.durable.step import encode_step, next_attempt, run_with_retry, since
from stepwell.error_text import error_line_of
from stepwell.errors import BadValue
from stepwell.telemetry.bus import log
from stepwell.telemetry.steps import UndoFailed
from stepwell.values.outcome import SAYING
from stepwell.values.retry import Retry
from stepwell.values.step import NewStep


def undo_all(journal: Journal, most: int, default: Retry) -> Plan[None]:
    """Undo what was done, the last first. What cannot be undone is left so, and said."""
    journal.undoing = False  # from here on steps are taken again
    for key in journal.lost_undos:
        log(
            UndoFailed(
                journal.job.id,
                journal.job.task,
                journal.job.queue,
                journal.attempt,
                key,
                "the code does not come to that step any more",
            )
        )
    for undo in sorted(journal.undos, key=lambda undo: undo.n, reverse=True):
        key = f"undo:{undo.key}"
        saved = journal.peek(key)
        if saved is not None:
            continue
        place = Place(key, journal.number(), None)
        attempt = next_attempt(journal, key)
        args = (undo.value,) if takes_one(undo.fn) else ()
        began = time.perf_counter()
        try:
            value = yield from run_with_retry(
                journal,
                place,
                key,
                attempt,
                RunFunction(undo.fn, look_at(undo.fn).is_async, args, None, key),
                undo.retry or default,
                "undo",
            )
            encoded = encode_step(journal, key, value, most)
        except Exception as error:
            log(
                UndoFailed(
                    journal.job.id, journal.job.task, journal.job.queue, journal.attempt, undo.key, error_line_of(error)
                )
            )
            if isinstance(error, (*SAYING, BadValue)):
                yield Save(journal.with_notes(NewStep(key, place.n, "undo", error=describe_error(error))))
            continue
        step = NewStep(key, place.n, "undo", encoded, seconds=since(began))
        yield Save(journal.with_notes(step))
