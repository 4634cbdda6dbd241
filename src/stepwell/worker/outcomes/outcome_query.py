"""The statement that writes outcomes of one kind."""

from __future__ import annotations

from typing import Any

import psycopg

from stepwell.error_text import storable
from stepwell.errors import TooLarge
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.errors import in_short, stepwell_error
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.outcomes import Move
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import (
    Advanced,
    Cancelled,
    Failed,
    HandedBack,
    Misfit,
    Outcome,
    Restarted,
    Settled,
    Snoozed,
    Succeeded,
    Suspended,
    Undone,
)

Ending = tuple[ClaimedJob, Task[..., Any], Outcome]

# These end a job, all by stepwell.finish; each other outcome is written by a function of its stepwell_error.
ENDS = (Succeeded, Cancelled, Undone)


def needs_family(item: Ending) -> bool:
    """Whether writing this locks the job against all others, and its parent and children with it."""
    return isinstance(item[2], (*ENDS, Failed))


def size_of(item: Ending) -> int:
    """About how many bytes it takes to write this."""
    match item[2]:
        case Succeeded(result=text) | Suspended(wait=text) | Advanced(input=text) | Restarted(args=text):
            return len(text)
        case Failed() as failed:
            return len(failed.message) + len(failed.traceback or "")
        case Misfit(failed=failed):
            return len(failed.message)
        case Snoozed() | HandedBack() | Cancelled() | Undone() | Settled():
            return 0


def failure_of(task: Task[..., Any], error: psycopg.DataError) -> Failed:
    """What becomes of an outcome that the database refuses for what it says."""
    if isinstance(refused := stepwell_error(error), TooLarge):
        return Failed("bad_result", "TooLarge", f"task {task.name!r}: {refused}", None, None, error=refused)
    said = storable(f"task {task.name!r}: its outcome cannot be stored: {in_short(error)}")
    return Failed("bad_result", type(error).__name__, said, None, None, error=error)


def query_of(items: list[Ending], within: float) -> Query[Any]:
    """The statement that writes these outcomes, all of one kind. It fails rather than wait longer than `within` seconds
    for any one lock. It answers with the ids that the fence refused; of misfits with `HeldMisfits`."""
    if isinstance(items[0][2], Misfit):
        misfits = [(task, outcome.failed) for _, task, outcome in items if isinstance(outcome, Misfit)]
        return queries.outcomes.hold_misfits(
            [job.id for job, _, _ in items],
            [job.epoch for job, _, _ in items],
            [task.signature for task, _ in misfits],
            [failed.message for _, failed in misfits],
            [task.job_store.misfit_grace for task, _ in misfits],
            within,
        )
    return queries.locks.bounded(_unbounded(items), within)


def _unbounded(items: list[Ending]) -> Query[list[Any]]:
    ids = [job.id for job, _, _ in items]
    epochs = [job.epoch for job, _, _ in items]
    match items[0][2]:
        case Succeeded() | Cancelled() | Undone():
            return finish_query(items)
        case Failed():
            failures = [(task, outcome) for _, task, outcome in items if isinstance(outcome, Failed)]
            return queries.outcomes.fail(
                ids,
                epochs,
                [outcome.reason for _, outcome in failures],
                [outcome.type for _, outcome in failures],
                [outcome.message for _, outcome in failures],
                [outcome.traceback for _, outcome in failures],
                [outcome.delay for _, outcome in failures],
                [outcome.max_attempts or task.retry.max_attempts for task, outcome in failures],
                [task.keep_failed for task, _ in failures],
                [outcome.step for _, outcome in failures],
                _parents(items),
                [outcome.beside for _, outcome in failures],
            )
        case Snoozed():
            return queries.outcomes.snooze(
                ids, epochs, [o.delay for _, _, o in items if isinstance(o, Snoozed)], began=True
            )
        case HandedBack():
            delays = [o.delay for _, _, o in items if isinstance(o, HandedBack)]
            return queries.outcomes.snooze(ids, epochs, delays, began=False)
        case Suspended():
            return queries.outcomes.suspend(ids, epochs, [o.wait for _, _, o in items if isinstance(o, Suspended)])
        case Restarted():
            return queries.outcomes.restart(ids, epochs, [o.args for _, _, o in items if isinstance(o, Restarted)])
        case Advanced():
            return advance_query(items)
        case (Misfit() | Settled()) as other:
            raise AssertionError(f"{type(other).__name__} is not written here")


def advance_query(items: list[Ending]) -> Query[list[Any]]:
    """The statement that gives jobs back, to go on with the next step."""
    return queries.outcomes.advance(
        [
            Move(job.id, job.epoch, o.left, o.cursor, o.input, o.n, o.delay, o.queue, o.priority)
            for job, _, o in items
            if isinstance(o, Advanced)
        ]
    )


def _parents(items: list[Ending]) -> list[str]:
    return [job.parent_id for job, _, _ in items if job.parent_id is not None]


def finish_query(items: list[Ending]) -> Query[list[Any]]:
    """The statement that ends jobs which succeeded, were cancelled, or have been undone."""
    return queries.outcomes.finish(
        [job.id for job, _, _ in items],
        [job.epoch for job, _, _ in items],
        [outcome.result if isinstance(outcome, Succeeded) else None for _, _, outcome in items],
        [task.keep if isinstance(outcome, Succeeded) else task.keep_failed for _, task, outcome in items],
        ["succeeded" if isinstance(outcome, Succeeded) else "cancelled" for _, _, outcome in items],
        [outcome.reason if isinstance(outcome, Cancelled) else None for _, _, outcome in items],
        _parents(items),
    )
