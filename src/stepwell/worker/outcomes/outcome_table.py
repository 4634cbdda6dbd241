"""The one table of outcomes: how each type is written, counted, announced and sized. Runs no query itself.

To add an outcome, add its type to `values/outcome.py` and a row to `TABLE`; a test fails until both are there. Runs
whose rows have the same `write` share a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, assert_never, cast

import psycopg
from msgspec.structs import replace

from stepwell.errors import TooLarge
from stepwell.errors.text import storable
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.errors import in_short, stepwell_error
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.outcomes import Move
from stepwell.telemetry.bus import EventBus, JobEvent
from stepwell.telemetry.jobs import (
    AttemptFailed,
    CancelWritten,
    JobAdvanced,
    JobHandedBack,
    JobMisfit,
    JobRestarted,
    JobSnoozed,
    JobSucceeded,
    JobSuspended,
    JobUndone,
)
from stepwell.telemetry.steps import BackoffFailed
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import (
    Advanced,
    Cancelled,
    Failed,
    HandedBack,
    Misfit,
    Outcome,
    Restarted,
    Snoozed,
    Succeeded,
    Suspended,
    Undone,
)
from stepwell.values.step import LEAST_UNDO_ATTEMPTS, is_undoing

Kind = TypeVar("Kind", bound=Outcome, covariant=True)
T = TypeVar("T", bound=Outcome)

REFUSED = "refused"
"""The counter of outcomes that the fence refused: the job was no longer this run's."""


class EndedRun(NamedTuple, Generic[Kind]):
    """A job that left its slot, or never had one, and what is to be written of it."""

    job: ClaimedJob
    task: Task[..., Any]
    outcome: Kind
    attempt: int
    seconds: float | None
    """How long the job ran; None: it did not, and is not counted."""
    began: float = 0.0
    """When it started, by `perf_counter`, if `seconds` says that it did."""

    @property
    def about(self) -> tuple[str, str, str, int]:
        attempt = self.outcome.attempt if isinstance(self.outcome, Failed) else None
        return self.job.id, self.job.task, self.job.queue, attempt or self.attempt


def unstarted(job: ClaimedJob, task: Task[..., Any], outcome: T) -> EndedRun[T]:
    return EndedRun(job, task, outcome, job.attempt, None)


@dataclass(frozen=True)
class OutcomeRow(Generic[Kind]):
    """How outcomes of one type are handled. `write` is the statement for a batch of them, which fails rather than wait
    longer than so many seconds for any one lock; it answers with the ids that the fence refused, or `HeldMisfits`."""

    write: Callable[[Sequence[EndedRun[Kind]], float], Query[Any]]
    counter: str
    event: type[JobEvent]
    fields: Callable[[EndedRun[Kind]], tuple[object, ...]] = lambda _: ()
    """The fields of the event after those that every `JobEvent` has."""
    may_end: bool = False
    """Whether the job may end with it. Writing it then locks the job's parent and children, too."""
    size: Callable[[Kind], int] = lambda _: 0
    """About how many bytes it takes to write."""


def announce(run: EndedRun[Outcome], events: EventBus) -> None:
    failed = run.outcome
    if isinstance(failed, Failed) and failed.backoff_error is not None:
        # Only the steps of chains and the states of machines have a limit of attempts of their own.
        of = run.job.task if failed.max_attempts is None else f"step {failed.step!r} of {run.job.task}"
        events.emit(BackoffFailed(*run.about, of, failed.backoff_error, failed.delay or 0.0))
    row = TABLE[type(run.outcome)]
    if events.wanted(row.event):
        event = row.event(*run.about, *row.fields(run))
        error = None
        if isinstance(event, AttemptFailed) and event.final and isinstance(run.outcome, Failed):
            error = run.outcome.error
            event = replace(event, exception=error)
        events.emit(event, error)


def size_of(run: EndedRun[Outcome]) -> int:
    return TABLE[type(run.outcome)].size(run.outcome)


def failure_of(task: Task[..., Any], error: psycopg.DataError) -> Failed:
    """The failure to write in place of an outcome whose value the database refuses."""
    if isinstance(refused := stepwell_error(error), TooLarge):
        return Failed("bad_result", "TooLarge", f"task {task.name!r}: {refused}", None, None, error=refused)
    message = storable(f"task {task.name!r}: its outcome cannot be stored: {in_short(error)}")
    return Failed("bad_result", type(error).__name__, message, None, None, error=error)


def finish_query(runs: Sequence[EndedRun[Succeeded | Cancelled | Undone]]) -> Query[list[Any]]:
    """The statement that ends jobs that succeeded, were cancelled or were compensated."""
    if all([type(run.outcome) is Succeeded for run in runs]):  # noqa: C419  as most are; a list takes half the time
        succeeded = cast("Sequence[EndedRun[Succeeded]]", runs)
        return queries.outcomes.finish(
            *_fences(runs),
            [run.outcome.result for run in succeeded],
            [run.task.keep for run in runs],
            ["succeeded"],
            [],
            _parents(runs),
            [run.task.keep_by_queue for run in runs],
        )
    results: list[str | None] = []
    keeps: list[float] = []
    states: list[str] = []
    reasons: list[str | None] = []
    by_queue: list[bool] = []
    for run in runs:
        outcome = run.outcome
        match outcome:
            case Succeeded():
                result, keep, state, reason = outcome.result, run.task.keep, "succeeded", None
            case Cancelled():
                result, keep, state, reason = None, run.task.keep_failed, "cancelled", outcome.reason
            case Undone():
                # The database knows whether the job had failed or was cancelled before it was undone.
                result, keep, state, reason = None, run.task.keep_failed, "cancelled", None
            case _:
                assert_never(outcome)
        results.append(result)
        keeps.append(keep)
        states.append(state)
        reasons.append(reason)
        by_queue.append(run.task.keep_by_queue if state == "succeeded" else run.task.keep_failed_by_queue)
    return queries.outcomes.finish(*_fences(runs), results, keeps, states, reasons, _parents(runs), by_queue)


def advance_query(runs: Sequence[EndedRun[Advanced]]) -> Query[list[Any]]:
    """The statement that releases jobs of chains and machines, to go on with the next step."""
    return queries.outcomes.advance(
        [
            Move(run.job.id, run.job.epoch, o.left, o.cursor, o.input, o.n, o.delay, o.queue, o.priority)
            for run in runs
            for o in (run.outcome,)
        ]
    )


def _finish(runs: Sequence[EndedRun[Succeeded | Cancelled | Undone]], within: float) -> Query[Any]:
    return queries.locks.bounded(finish_query(runs), within)


def _fail(runs: Sequence[EndedRun[Failed]], within: float) -> Query[Any]:
    query = queries.outcomes.fail(
        *_fences(runs),
        [run.outcome.reason for run in runs],
        [run.outcome.type for run in runs],
        [run.outcome.message for run in runs],
        [run.outcome.traceback for run in runs],
        [run.outcome.delay for run in runs],
        [run.outcome.max_attempts or run.task.retry.max_attempts for run in runs],
        [run.task.keep_failed for run in runs],
        [run.outcome.step for run in runs],
        _parents(runs),
        [run.outcome.beside for run in runs],
        [run.task.keep_failed_by_queue for run in runs],
        [run.outcome.frame for run in runs],
        [run.outcome.first_step for run in runs],
    )
    return queries.locks.bounded(query, within)


def _hold(runs: Sequence[EndedRun[Misfit]], within: float) -> Query[Any]:
    return queries.outcomes.hold_misfits(
        *_fences(runs),
        [run.task.signature for run in runs],
        [run.outcome.failed.message for run in runs],
        [run.task.job_store.misfit_grace for run in runs],
        within,
    )


def _snooze(runs: Sequence[EndedRun[Snoozed]], within: float) -> Query[Any]:
    return queries.locks.bounded(
        queries.outcomes.snooze(
            *_fences(runs),
            [run.outcome.delay for run in runs],
            began=True,
            closing=[run.job.id for run in runs if run.outcome.closes],
            first_steps=[run.outcome.first_step for run in runs],
        ),
        within,
    )


def _hand_back(runs: Sequence[EndedRun[HandedBack]], within: float) -> Query[Any]:
    return queries.locks.bounded(
        queries.outcomes.snooze(*_fences(runs), [run.outcome.delay for run in runs], began=False), within
    )


def _suspend(runs: Sequence[EndedRun[Suspended]], within: float) -> Query[Any]:
    return queries.locks.bounded(queries.outcomes.suspend(*_fences(runs), [run.outcome.wait for run in runs]), within)


def _restart(runs: Sequence[EndedRun[Restarted]], within: float) -> Query[Any]:
    return queries.locks.bounded(queries.outcomes.restart(*_fences(runs), [run.outcome.args for run in runs]), within)


def _advance(runs: Sequence[EndedRun[Advanced]], within: float) -> Query[Any]:
    return queries.locks.bounded(advance_query(runs), within)


def _fences(runs: Sequence[EndedRun[Outcome]]) -> tuple[list[str], list[int]]:
    return [run.job.id for run in runs], [run.job.epoch for run in runs]


def _parents(runs: Sequence[EndedRun[Outcome]]) -> list[str]:
    return [run.job.parent_id for run in runs if run.job.parent_id is not None]


def _failure_fields(run: EndedRun[Failed]) -> tuple[object, ...]:
    job, failed = run.job, run.outcome
    # The limit by which stepwell.fail decides.
    most = job.max_attempts or failed.max_attempts or run.task.retry.max_attempts
    most = max(most, LEAST_UNDO_ATTEMPTS) if is_undoing(job.journal) else most
    return most, failed.reason, failed.type, failed.message, failed.traceback, failed.delay, failed.step


TABLE: dict[type[Outcome], OutcomeRow[Any]] = {
    Succeeded: OutcomeRow[Succeeded](
        _finish,
        "succeeded",
        JobSucceeded,
        lambda run: (run.seconds or 0.0,),
        may_end=True,
        size=lambda o: len(o.result),
    ),
    Cancelled: OutcomeRow[Cancelled](
        _finish, "cancelled", CancelWritten, lambda run: (run.outcome.reason,), may_end=True
    ),
    Undone: OutcomeRow[Undone](_finish, "undone", JobUndone, may_end=True),
    Failed: OutcomeRow[Failed](
        _fail,
        "failed",
        AttemptFailed,
        _failure_fields,
        may_end=True,
        size=lambda o: len(o.message) + len(o.traceback or ""),
    ),
    Misfit: OutcomeRow[Misfit](
        _hold,
        "handed_back",
        JobMisfit,
        lambda run: (run.outcome.failed.message, run.task.job_store.misfit_grace),
        size=lambda o: len(o.failed.message),
    ),
    Snoozed: OutcomeRow[Snoozed](_snooze, "snoozed", JobSnoozed, lambda run: (run.outcome.delay,)),
    HandedBack: OutcomeRow[HandedBack](_hand_back, "handed_back", JobHandedBack),
    Suspended: OutcomeRow[Suspended](_suspend, "suspended", JobSuspended, size=lambda o: len(o.wait)),
    Advanced: OutcomeRow[Advanced](
        _advance, "advanced", JobAdvanced, lambda run: (run.outcome.cursor,), size=lambda o: len(o.input)
    ),
    Restarted: OutcomeRow[Restarted](_restart, "restarted", JobRestarted, size=lambda o: len(o.args)),
}
"""A row for every outcome but `NothingToWrite`: for that, the row of the outcome that was written applies."""
