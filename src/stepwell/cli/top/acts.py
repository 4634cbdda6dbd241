"""What a person may do in `stepwell top`: each choice is a question and, after a yes, one call of an app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from stepwell.app import App
from stepwell.cli.database import person
from stepwell.cli.top.tables import worker_state
from stepwell.cli.top.view import Record, View
from stepwell.errors import StepwellError
from stepwell.jobs.bulk import JobAct, retrying
from stepwell.jobs.bulk_operation import Counted, count_bulk, start_bulk
from stepwell.postgres import queries
from stepwell.postgres.queries.search import JobMatch
from stepwell.postgres.query_plan import arun

_REASON = "in stepwell top"
# A person waits for the question, and a call may take no longer than the command allows.
_COUNTING = 2_000


@dataclass(frozen=True, slots=True)
class Choice:
    """A question, and the call that follows a yes. The call says what it did."""

    question: str
    do: Callable[[], Awaitable[str]]


Counting = Callable[[], Coroutine[Any, Any, Choice]]
"""Counts jobs, which takes a while, and then has the question."""


def retry(app: App, tab: str, row: Record) -> Choice | Counting | None:
    """Run a job again, or all failed jobs of a group, which are counted before the question; None: there is nothing of
    the kind in this tab."""
    if tab == "jobs":
        return Choice(f"Retry job {row['id']} of {row['task']}?", lambda: _retry_job(app, row["id"]))
    if tab == "failures":
        return partial(_to_retry_group, app, row)
    return None


async def _to_retry_group(app: App, group: Record) -> Choice:
    act = retrying()
    which = act.narrow(JobMatch(failure=UUID(group["id"])))
    found = await arun(count_bulk(act, which, _COUNTING), app.database)
    jobs = f"of {group['task']} whose last attempt failed with {group['type']}{_place(group)}"
    if not (found.count or found.more):
        raise StepwellError(f"there are no failed jobs {jobs}")
    return Choice(f"Retry {found.of('failed job')} {jobs}?", lambda: _retry_group(app, act, which, found))


def cancel(app: App, tab: str, row: Record) -> Choice | None:
    if tab == "jobs":
        return Choice(
            f"Cancel job {row['id']} of {row['task']}, and its children?", lambda: _cancel_job(app, row["id"])
        )
    return None


def run_now(app: App, tab: str, row: Record) -> Choice | None:
    if tab == "jobs":
        return Choice(f"Run job {row['id']} of {row['task']} now?", lambda: _run_now(app, row["id"]))
    return None


def pause(app: App, tab: str, row: Record) -> Choice | None:
    """Pause a queue, a task or a worker, or resume it."""
    if tab == "queues":
        return _pause(app, row["paused_at"] is not None, f"queue {row['name']}", queue=row["name"])
    if tab == "tasks":
        return _pause(app, row["paused_at"] is not None, f"task {row['name']}", task=row["name"])
    if tab == "workers":
        return _pause(app, bool(row["paused"]), f"worker {row['host']}:{row['pid']}", worker=row["id"])
    return None


def stop(app: App, tab: str, row: Record) -> Choice | None:
    if tab == "workers" and worker_state(row) not in ("dead", "stopping"):
        return Choice(
            f"Stop worker {row['host']}:{row['pid']}, once its running jobs have finished?",
            lambda: _stop(app, row["id"]),
        )
    return None


def pause_everything(app: App, view: View) -> Choice:
    return _pause(app, view.paused, "everything", everything=True)


def _pause(
    app: App,
    paused: bool,
    what: str,
    *,
    queue: str | None = None,
    task: str | None = None,
    worker: str | None = None,
    everything: bool = False,
) -> Choice:
    async def resume() -> str:
        resumed = await app.aresume(queue, task=task, worker=worker, everything=everything)
        return f"{what} is resumed" if resumed else f"{what} has no pause of its own"

    async def pause() -> str:
        await app.apause(queue, task=task, worker=worker, everything=everything)
        return f"{what} is paused: running jobs go on"

    return Choice(f"Resume {what}?", resume) if paused else Choice(f"Pause {what}? Running jobs go on.", pause)


async def _retry_job(app: App, job_id: str) -> str:
    retried = await app.job(job_id).aretry()
    return (
        f"job {job_id} is ready to run again" if retried else f"job {job_id} was not changed: it is not to be retried"
    )


def _place(group: Record) -> str:
    return f" in {group['frame']}" if group["frame"] else ""


async def _retry_group(app: App, act: JobAct, which: JobMatch, confirmed: Counted) -> str:
    bulk_id = await arun(start_bulk(act, which, person(), confirmed), app.database)
    [found] = await app.database.afetch(queries.bulk.bulks(bulk_id))
    rest = (
        "the workers work it off"
        if found.workers
        else f"no worker is alive: start one, or run 'stepwell bulk continue {bulk_id}'"
    )
    return f"bulk operation {bulk_id} has started: {rest}"


async def _cancel_job(app: App, job_id: str) -> str:
    cancelled = await app.job(job_id).acancel(_REASON)
    return (
        f"job {job_id} is cancelled, or asked to stop" if cancelled else f"job {job_id} was not cancelled: it has ended"
    )


async def _run_now(app: App, job_id: str) -> str:
    ran = await app.job(job_id).arun_now()
    return f"job {job_id} is ready" if ran else f"job {job_id} was not changed: it is not scheduled"


async def _stop(app: App, worker_id: str) -> str:
    asked = await app.astop(worker=worker_id)
    return "the worker was asked to stop" if asked else "the worker is gone"
