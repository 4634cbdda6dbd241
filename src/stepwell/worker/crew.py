"""Everything that lives as long as one run of a worker, wired together."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

import msgspec

from stepwell import queries
from stepwell.app import App
from stepwell.events import (
    Events,
    JobsHandedBack,
    LeaseLost,
    LoopBlocked,
    PauseChanged,
    SchedulesRemoved,
    StopAsked,
)
from stepwell.job import ClaimedJob
from stepwell.migrate import DEFAULT_KEEPS
from stepwell.outcome import Snoozed
from stepwell.queries import Orders, Query
from stepwell.worker.duty import Duties
from stepwell.worker.fetcher import Fetcher
from stepwell.worker.lease import Lease, LeaseCallbacks
from stepwell.worker.link import Link
from stepwell.worker.listener import Listener, ListenerCallbacks
from stepwell.worker.outcomes import Outcomes
from stepwell.worker.runner import Runner
from stepwell.worker.ticker import Ticker
from stepwell.worker.upkeep import Upkeep

_DEAF_POLL = 0.2
_LEASE_LOOK = 0.25
_ARRIVAL_PAUSE = 0.5


class Crew:
    """Fetcher, runner, outcomes, lease, listener and upkeep of one run, and what they tell each other."""

    def __init__(
        self,
        app: App,
        events: Events,
        queues: list[str],
        concurrency: int,
        process_slots: int,
        poll: float,
        stop: Callable[[], None],
    ) -> None:
        self._app = app
        self._events = events
        self._concurrency = concurrency
        self._stop = stop
        self._stopping = False
        self._paused = PauseChanged(False, (), ())
        self._normal_poll = self._poll = poll
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lease: Lease | None = None
        self._links = {name: Link(name, app.database, events) for name in ("claim", "outcomes", "due", "upkeep")}
        self.queues = queues
        self.outcomes = Outcomes(self._links["outcomes"], events, self._freed)
        # Handlers in transactions hold a connection each while they run: not one of those by which they enqueue.
        self._transactions = app.database.with_pool_of(concurrency)
        self.runner = Runner(
            app.database,
            self._transactions,
            app.tasks,
            concurrency,
            process_slots,
            app.max_result_size,
            self.outcomes,
            events,
            self._freed,
        )
        self.fetcher = Fetcher(
            self._links["claim"],
            self.runner,
            self.outcomes,
            queues,
            list(app.tasks),
            lambda: self._poll,
            self._lease_gone,
        )
        keeps = {*DEFAULT_KEEPS, *(keep for task in app.tasks.values() for keep in (task.keep, task.keep_failed))}
        due, house = (Duties(self._links[name], lambda: app.dsn, events) for name in ("due", "upkeep"))
        self._upkeep = Upkeep(
            due,
            house,
            sorted(keeps),
            events,
            lambda: self.fetcher.worker_id,
            self.fetcher.wake,
            lambda: self._ticker.look(),
        )
        self._ticker = Ticker(due, lambda: self._upkeep.behind, lambda: self._upkeep.longest_nap)
        self._listener = Listener(
            app.database,
            Link("self-test", app.database, events),
            queues,
            events,
            ListenerCallbacks(
                self.fetcher.wake,
                self._upkeep.due,
                self._ticker.look,
                self._cancel_asked,
                self._control_asked,
                self._hearing,
            ),
        )

    @property
    def jobs_ended(self) -> int:
        """How many runs of jobs have ended, however they went."""
        return self.runner.ended

    def lease_for(self, lease: float, renew: float, blocked_after: float) -> Lease:
        tasks = {
            name: {
                "max_attempts": task.retry.max_attempts,
                "keep_failed": "Infinity" if task.keep_failed == float("inf") else task.keep_failed,
            }
            for name, task in self._app.tasks.items()
        }

        def register(age: float) -> Query[str]:
            return queries.register_worker(
                socket.gethostname(),
                os.getpid(),
                version("stepwell"),
                self.queues,
                msgspec.json.encode(tasks).decode(),
                self._concurrency,
                lease,
                age,
                self._app.name,
                self._app.scheduler.names,
                self._app.scheduler.stale_after,
            )

        self._lease = Lease(
            self._app.database,
            register,
            lease,
            renew,
            blocked_after,
            lambda: len(self.runner.running),
            LeaseCallbacks(self._gained, self._lost, self._obey, self._lease_failed, self._blocked),
        )
        return self._lease

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self.outcomes.run(),
            self._listener.run(),
            self._listener.test(),
            self._upkeep.promote(),
            self._upkeep.keep_house(),
            self._ticker.run(),
            self._tend(),
            self._watch_lease(),
        ]

    async def declare_schedules(self) -> None:
        """Put in the schedules that stand in the app's code."""
        removed = await self._app.scheduler.put_declared()
        if removed:
            self._events.emit(SchedulesRemoved(tuple(removed)))

    def hand_back(self, which: Callable[[ClaimedJob], bool] = lambda _: True) -> None:
        """Give unstarted jobs back, for others to run."""
        jobs = self.runner.give_back(which)
        for job in jobs:
            self.outcomes.add(job, self._app.tasks[job.task], Snoozed(0))
        if jobs:
            self._events.emit(JobsHandedBack(len(jobs)))

    async def close(self) -> None:
        self.runner.stop_all("lease")
        await self.runner.close()
        await self._transactions.aclose()
        await self._listener.close()
        for link in self._links.values():
            await link.close()

    async def _tend(self) -> None:
        """Hand prefetched jobs back when nothing has moved for a second: others may be free to run them."""
        while True:
            ended = self.runner.ended
            await asyncio.sleep(1)
            if self.runner.ended == ended and self.runner.waiting:
                self.fetcher.slow_down()
                self.hand_back()

    async def _watch_lease(self) -> None:
        assert self._lease is not None
        while not self._failed.done():
            await asyncio.wait([self._failed], timeout=_LEASE_LOOK)
            self._lease.check()
        await self._failed

    def _freed(self) -> None:
        self.fetcher.freed()

    def _hearing(self, hears: bool) -> None:
        self._poll = self._normal_poll if hears else min(_DEAF_POLL, self._normal_poll)
        if self._lease is not None:
            self._lease.hurry(not hears)
        self._upkeep.hurry(not hears)
        self.fetcher.wake()  # it may be in a long pause that counted on being woken

    def _gained(self, worker_id: str) -> None:
        self.fetcher.worker_id = worker_id
        self.fetcher.wake()

    def _lost(self, unanswered: bool) -> None:
        self._events.emit(LeaseLost(self.fetcher.worker_id or "?", len(self.runner.running)))
        self.fetcher.worker_id = None
        self.runner.give_back()
        self.runner.stop_all("lease")
        if unanswered:
            # What hangs now could hang for a quarter of an hour, long after the network is back.
            for link in self._links.values():
                link.sever()
            self._listener.sever()
            self.runner.sever()

    def _lease_gone(self) -> None:
        assert self._lease is not None
        self._lease.renew_now()

    def _lease_failed(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _cancel_asked(self, worker_id: str) -> None:
        # Anybody may notify: what is to be cancelled is what the database says, and a renewal asks it.
        if self._lease is not None and worker_id == self.fetcher.worker_id:
            self._lease.renew_now()

    def _control_asked(self) -> None:
        # As above; and what was resumed may be claimed at once.
        if self._lease is not None:
            self._lease.renew_now()
        self.fetcher.wake()

    def _obey(self, orders: Orders) -> None:
        self._cancel(orders.cancelling)
        paused = PauseChanged(orders.paused, tuple(orders.paused_queues), tuple(orders.paused_tasks))
        if paused != self._paused:
            self._paused = paused
            self._events.emit(paused)
        if paused.everything or paused.queues or paused.tasks:
            # What was claimed before, and waits for a slot, waits no longer here.
            self.hand_back(lambda job: paused.everything or job.queue in paused.queues or job.task in paused.tasks)
        if orders.stopping and not self._stopping:
            self._stopping = True
            self._events.emit(StopAsked())
            self._stop()

    def _cancel(self, job_ids: list[str]) -> None:
        known = [self.runner.stop(job_id, "cancel") for job_id in job_ids]
        if not all(known) and self._lease is not None:
            # Its claim may still be on its way to us.
            asyncio.get_running_loop().call_later(_ARRIVAL_PAUSE, self._lease.renew_now)

    def _blocked(self, length: float, stack: str) -> None:
        run = self.runner.on_loop()
        self._events.emit(LoopBlocked(length, run.job.task if run else None, run.job.id if run else None, stack))
