"""Ask why a job has not ended: for `handle.why`, and for the message of a `TimeoutError`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.query_plan import QueryPlan, arun, run
from stepwell.values.duration import describe
from stepwell.values.why import Why

if TYPE_CHECKING:
    from stepwell.jobs.enqueue import JobStore

# How many seconds a read may take that only improves an error message.
_FOR_A_MESSAGE = 1.0


def why_of(job_id: str) -> QueryPlan[Why]:
    [why] = yield queries.reads.why(job_id)
    return why


def glance(job_id: str, store: JobStore) -> Why | None:
    """Read why the job has not ended, for an error message. Returns None rather than wait for it."""
    if store.waiter.hears:
        import psycopg  # loaded by now: a program that only defines tasks starts without it

        with contextlib.suppress(StepwellError, psycopg.Error):
            return run(why_of(job_id), store.database, within=_FOR_A_MESSAGE)
    return None


async def aglance(job_id: str, store: JobStore) -> Why | None:
    if store.waiter.hears:
        import psycopg  # loaded by now: a program that only defines tasks starts without it

        with contextlib.suppress(StepwellError, psycopg.Error):
            return await arun(why_of(job_id), store.database, within=_FOR_A_MESSAGE)
    return None


def timed_out(job_id: str, limit: float | None, why: Why | None) -> TimeoutError:
    """Make the error for a job that has not ended in time. `why` says why, if known."""
    text = f"job {job_id} has not ended within {describe(limit or 0)}"
    return TimeoutError(text if why is None else f"{text}: {why}")
