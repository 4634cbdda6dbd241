"""The last minutes of a worker: running jobs end or are handed back, and their outcomes are written."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from stepwell.errors import StepwellError
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import OutcomesUnwritten, WorkerStopping
from stepwell.worker.loops import end_loops
from stepwell.worker.options import WorkerOptions
from stepwell.worker.worker_run import WorkerRun

# How long handlers that were asked to stop may take. After a second signal, those in threads get less: they cannot be
# cancelled, and most of them do not look at `ctx.cancelled`.
_CANCEL_PATIENCE = 5.0
_THREAD_PATIENCE = 1.0
_LOOP_PATIENCE = 1.0


async def drain(run: WorkerRun, options: WorkerOptions, events: EventBus, now_asked: asyncio.Event) -> None:
    """Wait for running jobs, hand back those that do not end in time, and wait until all outcomes are written."""
    run.slots.hand_back()
    grace = 0.0 if now_asked.is_set() else options.grace
    events.emit(_stopping(run, grace))
    idle = asyncio.ensure_future(run.slots.idle())
    now = asyncio.ensure_future(now_asked.wait())
    await asyncio.wait([idle, now], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    if not idle.done():
        if grace:
            events.emit(_stopping(run, 0.0))
        run.slots.stop_all("shutdown")
        await asyncio.wait([idle, now], timeout=_CANCEL_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if now.done():
            await _wait_a_little(idle, run)
        run.slots.abandon_all()
    now.cancel()
    idle.cancel()
    try:
        await asyncio.wait_for(run.outcomes.written(), options.lease)
    except TimeoutError:
        raise StepwellError(OutcomesUnwritten(run.outcomes.count, run.outcomes.locked).text()) from None


def stop_at_once(run: WorkerRun) -> None:
    """Claim no more, hand back the jobs that have not started, and ask all others to stop."""
    run.slots.stop_fetching()
    run.slots.hand_back()
    run.slots.stop_all("shutdown")


async def end_at_once(run: WorkerRun, loops: Collection[asyncio.Task[None]]) -> None:
    """After `stop_at_once`: end the loops, wait a little for handlers, and write the outcomes that are left."""
    # If Ctrl-C was raised just before asyncio would have woken a loop, that loop never ends.
    with suppress(TimeoutError):
        await asyncio.wait_for(end_loops(loops), _LOOP_PATIENCE)
    stop_at_once(run)  # once more: a claim that was under way may have brought jobs
    idle = asyncio.ensure_future(run.slots.idle())
    await _wait_a_little(idle, run)
    idle.cancel()
    run.slots.abandon_all()
    await run.write_last()


async def _wait_a_little(idle: asyncio.Future[None], run: WorkerRun) -> None:
    """Wait for handlers that were asked to stop, and for processes until they are dead."""
    await asyncio.wait([idle], timeout=_THREAD_PATIENCE)
    if not run.slots.only_threads_run:
        await asyncio.wait([idle], timeout=_CANCEL_PATIENCE - _THREAD_PATIENCE)


def _stopping(run: WorkerRun, grace: float) -> WorkerStopping:
    # A job can be here twice: it came back while its lost run goes on.
    jobs = dict.fromkeys(f"{job.task} {job.id}" for job in run.slots.jobs[:4])
    return WorkerStopping(run.slots.running, grace, tuple(jobs)[:3])
