"""The last minutes of a worker: running jobs end or are handed back, and their outcomes are written."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from stepwell.errors import StepwellError
from stepwell.postgres.threads import begin_in_thread
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import OutcomesUnwritten, WorkerStopping
from stepwell.worker.loops import end_loops
from stepwell.worker.options import WorkerOptions
from stepwell.worker.script_end import outlast_cancels
from stepwell.worker.worker_run import WorkerRun

# How long handlers that were asked to stop may take. After a second signal, those in threads get less: they cannot be
# cancelled, and most of them do not look at `ctx.cancelled`.
_CANCEL_PATIENCE = 5.0
_THREAD_PATIENCE = 1.0
# For the worker's own loops, after Ctrl-C in the midst of them.
_LOOP_PATIENCE = 1.0


async def drain(
    run: WorkerRun,
    claiming: Collection[asyncio.Task[None]],
    options: WorkerOptions,
    events: EventBus,
    now_asked: asyncio.Event,
) -> None:
    """Claim no more, wait for running jobs, hand back those that do not end in time, and wait until all outcomes are
    written."""
    run.slots.stop_fetching()
    if now_asked.is_set():
        # Before a claim that is under way is waited for.
        stop_at_once(run)
    await asyncio.gather(*claiming)
    await run.claims.hand_back_last()
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
            await _wait_for_stopped(idle, run)
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


async def end_interrupted(run: WorkerRun, loops: Collection[asyncio.Task[None]]) -> None:
    """End a worker that was cancelled, or got Ctrl-C in the midst of its own code, although that may happen again."""
    stop_at_once(run)
    await outlast_cancels(asyncio.create_task(_end_at_once(run, loops)))


async def _end_at_once(run: WorkerRun, loops: Collection[asyncio.Task[None]]) -> None:
    # If Ctrl-C was raised just before asyncio would have woken a loop, that loop never ends. The outcomes are written
    # all the same, and then the script waits for that loop, until a third Ctrl-C.
    with suppress(TimeoutError):
        await asyncio.wait_for(end_loops(loops), _LOOP_PATIENCE)
    stop_at_once(run)  # once more: a claim that was under way may have brought jobs
    idle = asyncio.ensure_future(run.slots.idle())
    await _wait_for_stopped(idle, run)
    idle.cancel()
    run.slots.abandon_all()
    await run.write_and_hand_back_last()


async def _wait_for_stopped(idle: asyncio.Future[None], run: WorkerRun) -> None:
    """Wait for handlers that were asked to stop: a second for those in threads, up to five for others."""
    await asyncio.wait([idle], timeout=_THREAD_PATIENCE)
    if not run.slots.only_threads_run:
        await asyncio.wait([idle], timeout=_CANCEL_PATIENCE - _THREAD_PATIENCE)


async def leave(run: WorkerRun) -> None:
    """End the processes and then the lease, also if this is cancelled: a lease that goes on would keep the jobs that
    this worker still holds from all others."""
    leaving = asyncio.create_task(_leave(run))
    try:
        await asyncio.shield(leaving)
    except asyncio.CancelledError:
        await outlast_cancels(leaving)
        raise


async def _leave(run: WorkerRun) -> None:
    try:
        # First: when the lease has ended, other workers may claim the jobs of these processes.
        await run.processes.close()
    finally:
        await outlast_cancels(begin_in_thread(run.lease.stop))


def _stopping(run: WorkerRun, grace: float) -> WorkerStopping:
    # A job can be here twice: it came back while its lost run goes on.
    jobs = dict.fromkeys(f"{job.task} {job.id}" for job in run.slots.jobs)
    return WorkerStopping(run.slots.running, grace, tuple(jobs)[:3])
