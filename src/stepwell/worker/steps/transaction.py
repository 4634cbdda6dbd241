"""Run a handler inside a transaction that commits with its job's completion, or not at all.

The completion is the fence: it deletes the job's row by (id, epoch) in the same transaction, so a late run finds
nothing and is rolled back. When the connection is lost around the commit nobody guesses: `still_held` waits for the
server's side of it to end, and then looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from stepwell.durable.job_context import JobContext
from stepwell.errors import TooLarge
from stepwell.execution.executor import execute, execute_plain, outcome_of
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.database import Database, afetch, fetch
from stepwell.postgres.errors import is_rolled_back, is_transient, own
from stepwell.postgres.queries import Query
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Advanced, HandedBack, NothingToWrite, Outcome, Succeeded
from stepwell.worker.outcomes.outcome_table import advance_query, failure_of, finish_query, unstarted
from stepwell.worker.write_observer import about_to_write

# The handler has not begun: that no connection was to be had is not its failure.
_NO_CONNECTION_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The handler succeeded, and then its transaction met another one: a deadlock, say. That is no fault of its own, so
    it may be run again. `outcome` is for when that has gone on for too long."""

    outcome: Outcome


class _Refused(Exception):
    """Leaves the transaction block without a commit."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class TransactionEnded(Exception):
    """The handler committed or rolled back the transaction that was to commit with its job."""


async def execute_in_transaction(
    database: Database,
    job: ClaimedJob,
    task: Task[..., Any],
    ctx: JobContext,
    max_result_size: int,
    finishing: Callable[[int], object],
) -> Outcome | RolledBack | psycopg.Error:
    """Run a coroutine function; `finishing` is called, with its session's pid, when it has ended and must no longer be
    cancelled.

    An error that is returned, not raised, leaves the commit in doubt.
    """
    begun = handed_over = False
    try:
        async with database.aconnection() as connection, connection.transaction():
            mark = f"{job.id}/{job.epoch}"
            await afetch(connection, queries.mark_transaction(mark))
            ctx.lend(connection)
            begun = True
            outcome = await execute(task, job.args, ctx, max_result_size)
            ctx.lend(None)
            finishing(connection.info.backend_pid)
            if not isinstance(outcome, Succeeded | Advanced):
                raise _Refused(outcome)
            if (await afetch(connection, queries.transaction_mark()))[0] != mark:
                raise _ended(task)
            handed_over = True
            refused = (await afetch(connection, _write(job, task, outcome)))[0]
            if refused:
                raise _Refused(NothingToWrite())
            committed = about_to_write("transaction", "commit")
        committed(())
        return NothingToWrite(outcome)
    except _Refused as refused:
        return refused.outcome
    except Exception as error:
        return _judge(error, task, job, begun=begun, handed_over=handed_over)


def execute_plain_in_transaction(
    database: Database,
    job: ClaimedJob,
    task: Task[..., Any],
    ctx: JobContext,
    max_result_size: int,
    finishing: Callable[[int], object],
) -> Outcome | RolledBack | psycopg.Error:
    """The same for a plain function, in this thread."""
    begun = handed_over = False
    try:
        with database.connection() as connection, connection.transaction():
            mark = f"{job.id}/{job.epoch}"
            fetch(connection, queries.mark_transaction(mark))
            ctx.lend(connection)
            begun = True
            outcome = execute_plain(task, job.args, ctx, max_result_size)
            ctx.lend(None)
            finishing(connection.info.backend_pid)
            if not isinstance(outcome, Succeeded | Advanced):
                raise _Refused(outcome)
            if fetch(connection, queries.transaction_mark())[0] != mark:
                raise _ended(task)
            handed_over = True
            refused = fetch(connection, _write(job, task, outcome))[0]
            if refused:
                raise _Refused(NothingToWrite())
            committed = about_to_write("transaction", "commit")
        committed(())
        return NothingToWrite(outcome)
    except _Refused as refused:
        return refused.outcome
    except Exception as error:
        return _judge(error, task, job, begun=begun, handed_over=handed_over)


def _write(job: ClaimedJob, task: Task[..., Any], outcome: Succeeded | Advanced) -> Query[list[Any]]:
    if isinstance(outcome, Succeeded):
        return finish_query([unstarted(job, task, outcome)])
    return advance_query([unstarted(job, task, outcome)])


def _judge(
    error: Exception, task: Task[..., Any], job: ClaimedJob, *, begun: bool, handed_over: bool
) -> Outcome | RolledBack | psycopg.Error:
    """What an error around the handler means, by how far things had come."""
    if not begun and is_transient(error):
        return HandedBack(_NO_CONNECTION_PAUSE)
    if handed_over and is_rolled_back(error):
        return RolledBack(outcome_of(error, task, job.attempt))
    if handed_over and isinstance(error, psycopg.OperationalError):
        return error
    if handed_over and isinstance(error, psycopg.DataError) and isinstance(own(error), TooLarge):
        return failure_of(task, error)
    return outcome_of(error, task, job.attempt)


def _ended(task: Task[..., Any]) -> TransactionEnded:
    return TransactionEnded(
        f"task {task.name!r} committed or rolled back ctx.connection itself: it is committed with the job; for a "
        "transaction of your own take a connection of your own"
    )
