"""Run a handler inside a transaction that commits with its job's completion, or not at all.

The completion is the fence: it deletes the job's row by (id, epoch) in the same transaction, so a late run finds no row
and is rolled back. If the connection is lost around the commit, `still_held` waits until the server has ended the
session, and then looks whether the commit succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from stepwell.durable.backend import OpenTransaction
from stepwell.durable.job_context import JobContext, run_of
from stepwell.errors import TooLarge
from stepwell.execution.executor import execute, execute_plain, outcome_of
from stepwell.jobs.task import Task
from stepwell.postgres.callers.sessions import as_psycopg
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_rolled_back, is_transient, stepwell_error
from stepwell.postgres.queries import Query
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Advanced, HandedBack, NothingToWrite, Outcome, Succeeded
from stepwell.worker.outcomes.outcome_table import advance_query, failure_of, finish_query, unstarted
from stepwell.worker.steps.open_transaction import open_transaction

# The handler has not begun, so a missing connection is not its failure.
_NO_CONNECTION_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The handler succeeded, but its transaction conflicted with another one, as in a deadlock. It may run again.
    `outcome` applies once that has happened too often."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The error at the end of a transaction that leaves it unknown whether it was committed."""

    error: Exception


class _Refused(Exception):
    """Leaves the transaction block without a commit."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class TransactionEnded(Exception):
    """The handler itself committed or rolled back the transaction that commits with its job."""


async def execute_in_transaction(
    database: Database,
    job: ClaimedJob,
    task: Task[..., Any],
    ctx: JobContext,
    max_result_size: int,
    finishing: Callable[[int], object],
    *,
    blocking: bool = False,
) -> Outcome | RolledBack | InDoubt:
    """Run a handler: a coroutine function, or if `blocking` a plain function in this thread. `finishing` is called with
    the session's pid when the handler has ended and must no longer be cancelled."""
    opened: OpenTransaction | None = None
    handed_over = False
    run = run_of(ctx)
    try:
        async with open_transaction(database, task.sessions, blocking=blocking, mark=f"{job.id}/{job.epoch}") as opened:
            run.transaction = opened.given
            outcome = (
                execute_plain(task, job.args, ctx, max_result_size)
                if blocking
                else await execute(task, job.args, ctx, max_result_size)
            )
            run.transaction = None
            finishing(opened.pid)
            if not isinstance(outcome, Succeeded | Advanced):
                raise _Refused(outcome)
            if await opened.ended():
                raise _ended(task)
            handed_over = True
            refused = (await opened.run(_write(job, task, outcome)))[0]
            if refused:
                raise _Refused(NothingToWrite())
        return NothingToWrite(outcome)
    except _Refused as refused:
        return refused.outcome
    except Exception as error:
        return _judge(error, task, job, opened, handed_over=handed_over)


def _write(job: ClaimedJob, task: Task[..., Any], outcome: Succeeded | Advanced) -> Query[list[Any]]:
    if isinstance(outcome, Succeeded):
        return finish_query([unstarted(job, task, outcome)])
    return advance_query([unstarted(job, task, outcome)])


def _judge(
    error: Exception, task: Task[..., Any], job: ClaimedJob, opened: OpenTransaction | None, *, handed_over: bool
) -> Outcome | RolledBack | InDoubt:
    """The meaning of an error around the handler, by how far the transaction had come. `opened` None: it had not
    begun."""
    same = as_psycopg(error) or error
    if opened is None and is_transient(same):
        return HandedBack(_NO_CONNECTION_PAUSE)
    if opened is None or not handed_over:
        return outcome_of(error, task, job.attempt)
    if is_rolled_back(same):
        return RolledBack(outcome_of(error, task, job.attempt))
    if opened.leaves_in_doubt(error):
        return InDoubt(error)
    if isinstance(same, psycopg.DataError) and isinstance(stepwell_error(same), TooLarge):
        return failure_of(task, same)
    return outcome_of(error, task, job.attempt)


def _ended(task: Task[..., Any]) -> TransactionEnded:
    return TransactionEnded(
        f"task {task.name!r} committed or rolled back ctx.{'connection' if task.sessions is None else 'session'} "
        "itself: Stepwell commits it with the job; for a transaction of your own open a connection of your own"
    )
