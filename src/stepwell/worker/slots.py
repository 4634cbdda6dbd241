"""All slots of a worker: a runner and a fetcher for each pool, and the calls that concern all pools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stepwell.postgres.queries.claims import FirstReady, Position
from stepwell.telemetry.jobs import JobsHandedBack
from stepwell.telemetry.worker import LoopBlocked
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import HandedBack
from stepwell.worker.claiming.balance import Balance
from stepwell.worker.claiming.claim_budget import ClaimBudget
from stepwell.worker.claiming.claims import Claims
from stepwell.worker.claiming.fetcher import Fetcher
from stepwell.worker.claiming.pools import Pools
from stepwell.worker.claiming.ready_ranges import ReadyRange
from stepwell.worker.runner import Runner
from stepwell.worker.running_job import StopReason
from stepwell.worker.shared_parts import SharedParts

# In one turn of the event loop no more jobs than this are started. Hundreds of quick ones at once would keep it from
# its connections for milliseconds, and Postgres would wait for the next claim and the next outcomes.
_STARTS_PER_TURN = 50


class Slots:
    """The pools of a worker. Unstarted jobs are those that were claimed and wait for a slot."""

    def __init__(self, shared: SharedParts, pools: Pools, balance: Balance, claims: Claims, max_held_size: int) -> None:
        self._pools = pools
        self._claims = claims
        self._events = shared.events
        starts = max(1, _STARTS_PER_TURN // len(pools.all))
        self.runners = [Runner(shared, pool.slots, starts) for pool in pools.all]
        budget = ClaimBudget(max_held_size, self.runners, shared.outcomes)
        self.fetchers = [
            Fetcher(claims, runner, pools, number, balance, budget) for number, runner in enumerate(self.runners)
        ]

    @property
    def ended(self) -> int:
        return sum(runner.ended for runner in self.runners)

    @property
    def running(self) -> int:
        return sum(runner.running_jobs for runner in self.runners)

    @property
    def unstarted(self) -> int:
        return sum(runner.unstarted_jobs for runner in self.runners)

    @property
    def jobs(self) -> list[ClaimedJob]:
        return [job for runner in self.runners for job in runner.jobs]

    def notified(self, queue: str, ready: ReadyRange) -> bool:
        """Pass a notification on. False: its pool has no room for it."""
        pool = self._pools.pool_of(queue)
        return pool is None or self.fetchers[pool].notified(queue, ready)

    def found(self, first: FirstReady) -> None:
        pool = self._pools.pool_of(first.queue)
        if pool is not None:
            ready = ReadyRange(Position(first.rank, first.run_at), first.last_rank)
            self.fetchers[pool].found(first.queue, ready)

    def lease_gained(self) -> None:
        for fetcher in self.fetchers:
            fetcher.lease_gained()

    def stop_fetching(self) -> None:
        self._claims.stopping = True
        for fetcher in self.fetchers:
            fetcher.stop()

    async def idle(self) -> None:
        for runner in self.runners:
            await runner.idle()

    async def committed(self) -> None:
        """Wait for the transactional runs whose handlers have ended, and whose transactions may be committed."""
        handlers = [run.handler for runner in self.runners for run in runner.running.values() if run.finishing]
        if waited := [handler for handler in handlers if handler is not None]:
            await asyncio.wait(waited)

    def cancel(self, job_ids: list[str]) -> bool:
        """Ask jobs to stop, because they are cancelled. False: some of them are not here."""
        found = [any(runner.stop(job_id, "cancel") for runner in self.runners) for job_id in job_ids]
        return all(found)

    def stop_all(self, reason: StopReason) -> None:
        for runner in self.runners:
            runner.stop_all(reason)

    @property
    def only_threads_run(self) -> bool:
        return all(runner.only_threads_run for runner in self.runners)

    def abandon_all(self) -> None:
        for runner in self.runners:
            runner.abandon_all()

    def drop_unstarted(self) -> None:
        """Forget unstarted jobs: the lease is gone, and they are no longer this worker's."""
        for runner in self.runners:
            runner.drop_unstarted()

    def hand_back(self, which: Callable[[ClaimedJob], bool] = lambda _: True) -> None:
        handed_back = sum(self._hand_back(runner, which) for runner in self.runners)
        if handed_back:
            self._events.emit(JobsHandedBack(handed_back))

    async def hand_back_stalled(self) -> None:
        """Hand prefetched jobs back when no job of their pool has ended for a second, until cancelled: other workers
        may have free slots."""
        while True:
            ended = [runner.ended for runner in self.runners]
            await asyncio.sleep(1)
            for runner, fetcher, before in zip(self.runners, self.fetchers, ended, strict=True):
                if runner.ended == before and runner.unstarted:
                    fetcher.slow_down()
                    self._events.emit(JobsHandedBack(self._hand_back(runner, gathering=False)))

    def _hand_back(
        self, runner: Runner, which: Callable[[ClaimedJob], bool] = lambda _: True, *, gathering: bool = True
    ) -> int:
        jobs = runner.drop_unstarted(which, gathering=gathering)
        for job in jobs:
            runner.end_unstarted(job, HandedBack())
        return len(jobs)

    def loop_blocked(self, seconds: float, stack: str) -> None:
        """The event loop is blocked: log which job runs on it. Called in the lease's thread."""
        job = next((job for runner in self.runners if (job := runner.on_loop())), None)
        about = (job.id, job.task, job.queue, job.attempt) if job else (None, None, None, None)
        self._events.emit(LoopBlocked(seconds, *about, stack))

    def stack(self, job_id: str, loop_thread: int) -> str:
        """Where the handler of a job is now. Called in the lease's thread."""
        found = (runner.stack(job_id, loop_thread) for runner in self.runners)
        return next((stack for stack in found if stack is not None), "it no longer runs in this worker")

    def sever(self) -> None:
        for runner in self.runners:
            runner.sever()

    def close(self) -> None:
        for runner in self.runners:
            runner.close()
