"""Everything that lives as long as one run of a worker, wired together."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

import msgspec
import psycopg

from stepwell.app import App
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.errors import is_permanent, is_transient
from stepwell.postgres.migrate import DEFAULT_KEEPS
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.claims import FirstReady, Position
from stepwell.postgres.queries.fleet import Orders
from stepwell.telemetry.events import (
    Events,
    JobsHandedBack,
    LeaseLost,
    LoopBlocked,
    PauseChanged,
    SchedulesRemoved,
    StopAsked,
    TasksShared,
)
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import HandedBack, Outcome
from stepwell.worker.claiming.balance import Balance
from stepwell.worker.claiming.claims import Claims
from stepwell.worker.claiming.fetcher import Fetcher
from stepwell.worker.claiming.held import Held
from stepwell.worker.claiming.lookout import Lookout
from stepwell.worker.claiming.places import Place
from stepwell.worker.claiming.pools import Pool, Pools
from stepwell.worker.connections import Connections
from stepwell.worker.lease import Lease, LeaseCallbacks
from stepwell.worker.link import Link
from stepwell.worker.listener import Listener, ListenerCallbacks
from stepwell.worker.loops import keep_going, tell
from stepwell.worker.outcomes.stats import Stats
from stepwell.worker.outcomes.writer import Outcomes
from stepwell.worker.process import Processes
from stepwell.worker.runner import Runner
from stepwell.worker.running_job import Why
from stepwell.worker.steps.step_store import StepStore
from stepwell.worker.steps.step_threads import StepThreads
from stepwell.worker.upkeep.duty import Duties
from stepwell.worker.upkeep.ticker import Ticker
from stepwell.worker.upkeep.upkeep import Upkeep

_LEASE_LOOK = 0.25
_ARRIVAL_PAUSE = 0.5
_DECLARE_PAUSE = 5.0
_DECLARING = "putting in the schedules of this app"
# In one turn of the event loop no more than so many jobs are started. Hundreds of quick ones at once would keep it from
# its connections for milliseconds, and Postgres would wait for the next claim and the next outcomes.
_STARTS_PER_TURN = 50
# Beyond one for each slot, so many claimed jobs may wait: for a slot, or for their outcomes to be written.
_MOST_HELD = 3000


class Crew:
    """Fetchers, runners, outcomes, lease, listener and upkeep of one run, and what they tell each other."""

    def __init__(
        self,
        app: App,
        events: Events,
        pools: Pools,
        balance: Balance,
        process_slots: int,
        poll: float,
        stop: Callable[[], None],
        *,
        max_held_size: int,
        always_replay: bool,
    ) -> None:
        self._app = app
        self._always_replay = always_replay
        self._events = events
        self.pools = pools
        self._stop = stop
        self._stopping = False
        self._paused = PauseChanged(False, (), ())
        self._undeclared = asyncio.Event()
        self._undeclared.set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lease: Lease | None = None
        self._connections = Connections(app.database)
        self.outcomes = Outcomes(self._link("outcomes"), events, self._wrote, self._count)
        # Handlers in transactions hold a connection each while they run: not one of those by which they enqueue.
        self._transactions = app.database.with_pool_of(pools.slots, for_handlers=True)
        # Not the handlers' own threads: they wait for these.
        self._step_threads = StepThreads()
        self._steps = StepStore(
            self._link("steps"), self._transactions, app.max_result_size, self._step_threads, events
        )
        self._processes = Processes(process_slots, self._process_said)
        self._duties = self._duties_of("upkeep", slow=True)
        self.stats = Stats(self._duties)
        self._claims = Claims(self._link("claim"), self._known_jobs)
        self.runners: list[Runner] = []
        self.fetchers: list[Fetcher] = []
        for number, pool in enumerate(pools.all):
            self._add_pool(number, pool, balance)
        self._held = Held(max_held_size, self.runners, self.outcomes)
        keeps = {*DEFAULT_KEEPS, *(keep for task in app.tasks.values() for keep in (task.keep, task.keep_failed))}
        self._lookout = Lookout(
            self._duties_of("look", slow=True),
            lambda: self.worker_id,
            pools.queues,
            list(app.tasks),
            poll,
            self._first_ready,
        )
        self._upkeep = Upkeep(
            self._duties_of("due"),
            self._duties,
            sorted(keeps),
            events,
            lambda: self.worker_id,
            self._lookout.promoted,
            lambda: self._ticker.look(),
            lambda: self._ticker.rewind(),
        )
        self._ticker = Ticker(self._duties_of("ticks"), lambda: self._upkeep.behind, lambda: self._upkeep.longest_nap)
        self._listener = Listener(
            app.database,
            self._link("self-test", slow=True),
            events,
            ListenerCallbacks(
                self._lookout.look,
                self._ready_at,
                self._upkeep.due,
                self._ticker.look,
                self._cancel_asked,
                self._control_asked,
                self._hearing,
            ),
        )

    def _link(self, name: str, *, slow: bool = False) -> Link:
        return Link(name, self._connections, self._events, slow=slow)

    def _duties_of(self, name: str, *, slow: bool = False) -> Duties:
        return Duties(self._link(name, slow=slow), lambda: self._app.dsn, self._events)

    def _add_pool(self, number: int, pool: Pool, balance: Balance) -> None:
        app, freed = self._app, asyncio.Event()
        runner = Runner(
            app.database,
            self._transactions,
            self._steps,
            app.tasks,
            pool.slots,
            max(1, _STARTS_PER_TURN // len(self.pools.all)),
            self._processes,
            app.max_result_size,
            self.outcomes,
            self._events,
            freed.set,
            always_replay=self._always_replay,
        )
        fetcher = Fetcher(
            self._claims,
            runner,
            pool,
            balance,
            list(app.tasks),
            self._room,
            lambda: self._held.room(number),
            lambda size: self._held.claimed(number, size),
            self._refuse,
            freed,
            self._lease_gone,
        )
        self.runners.append(runner)
        self.fetchers.append(fetcher)

    @property
    def worker_id(self) -> str | None:
        """The id under which it is registered now; None while it holds no lease."""
        return self._claims.worker_id

    @worker_id.setter
    def worker_id(self, worker_id: str | None) -> None:
        self._claims.worker_id = worker_id

    @property
    def runs_ended(self) -> int:
        """How many runs of jobs have ended, however they went."""
        return sum(runner.ended for runner in self.runners)

    @property
    def running(self) -> int:
        """How many jobs run."""
        return sum(len(runner.running) for runner in self.runners)

    def lease_for(self, lease: float, renew: float, blocked_after: float) -> Lease:
        tasks = {
            name: {
                "max_attempts": task.retry.max_attempts,
                "keep_failed": "Infinity" if task.keep_failed == float("inf") else task.keep_failed,
                "queue": task.queue,
                "priority": task.priority,
            }
            for name, task in self._app.tasks.items()
        }

        def register(age: float, begun: int | None) -> Query[str]:
            return queries.fleet.register_worker(
                socket.gethostname(),
                os.getpid(),
                version("stepwell"),
                self.pools.queues,
                msgspec.json.encode(tasks).decode(),
                self.pools.slots,
                lease,
                age,
                begun,
                self._app.name,
                self._app.scheduler.names,
                self._app.scheduler.stale_after,
                self._app.owner is not None,
                [task.signature for task in self._app.tasks.values()],
            )

        self._lease = Lease(
            self._app.database,
            register,
            lease,
            renew,
            blocked_after,
            lambda: self.running,
            LeaseCallbacks(
                self._gained, self._lost, self._obey, self._lease_failed, self._lease_stumbled, self._blocked
            ),
        )
        return self._lease

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "writing outcomes": self.outcomes.run,
            "listening": self._listener.run,
            "testing the listener": self._listener.test,
            "looking for ready jobs": self._lookout.run,
            "promoting due jobs": self._upkeep.promote,
            "upkeep": self._upkeep.keep_house,
            "firing schedules": self._ticker.run,
            "putting in schedules": self._declare_again,
            "counting": self.stats.run,
            "handing jobs back": self._tend,
        }
        return [*(keep_going(name, loop, self._events) for name, loop in loops.items()), self._watch_lease()]

    def fetching(self) -> list[Coroutine[Any, Any, None]]:
        """A loop for each pool that claims until `stop_fetching`."""
        return [keep_going("claiming jobs", fetcher.run, self._events) for fetcher in self.fetchers]

    async def settle(self) -> None:
        """When nothing is claimed any more, give back what was claimed without our knowing."""
        await self._claims.settle()

    def stop_fetching(self) -> None:
        """Claim no more."""
        self._claims.stopping = True
        for fetcher in self.fetchers:
            fetcher.stop()

    async def idle(self) -> None:
        """Wait until no handler runs, and none is about to."""
        for runner in self.runners:
            await runner.idle()

    def stop_all(self, why: Why) -> None:
        """Ask every running job to stop."""
        for runner in self.runners:
            runner.stop_all(why)

    def abandon_all(self) -> None:
        """Write for every job still running that it was stopped, and no longer wait for its handler."""
        for runner in self.runners:
            runner.abandon_all()

    async def declare_schedules(self) -> None:
        """Put in the schedules that stand in the app's code. Should somebody hold one, that is tried again later."""
        # Not the app's own pool, which would keep a connection that only handlers need again.
        database = self._app.database.with_pool_of(1)
        try:
            removed = await self._app.scheduler.put_declared(database)
        except (psycopg.Error, StepwellError) as error:
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if cause is None or not is_transient(cause):
                raise
            self._duties.failed(_DECLARING, " ".join(str(cause).split()))
            return
        finally:
            await database.aclose()
        self._duties.recovered(_DECLARING)
        self._undeclared.clear()
        if removed:
            self._events.emit(SchedulesRemoved(tuple(removed)))

    async def warn_of_rivals(self) -> None:
        """Say whose workers may take the same jobs. That is no reason to stop: an app may be being renamed."""
        named = self._app.owner is not None
        if self.worker_id is not None:
            for rival in (
                await self._duties.do("looking for tasks of two apps", queries.fleet.rivals(self.worker_id)) or []
            ):
                self._events.emit(TasksShared(self._app.name, rival.owner, tuple(rival.tasks), named))

    async def _declare_again(self) -> None:
        """Whenever the lease was lost, others may have found our schedules stale and removed them."""
        while True:
            await self._undeclared.wait()
            await asyncio.sleep(1)
            try:
                await self.declare_schedules()
            except StepwellError as error:
                # At the start this ended the worker. By now it has jobs that run, and would rather keep them.
                if error.__cause__ is not None and is_permanent(error.__cause__):
                    raise
                self._duties.failed(_DECLARING, str(error))
                await asyncio.sleep(_DECLARE_PAUSE)

    def hand_back(self, which: Callable[[ClaimedJob], bool] = lambda _: True) -> None:
        """Give unstarted jobs back, for others to run."""
        self._hand_back([job for runner in self.runners for job in runner.give_back(which)])

    def _hand_back(self, jobs: list[ClaimedJob]) -> None:
        for job in jobs:
            self.outcomes.add(job, self._app.tasks[job.task].for_job(job), HandedBack())
        if jobs:
            self._events.emit(JobsHandedBack(len(jobs)))

    async def end_processes(self) -> None:
        """End the processes that still run jobs: before others may take these."""
        await self._processes.close()

    async def close(self) -> None:
        self.stop_all("lease")
        for runner in self.runners:
            runner.close()
        self._steps.close()
        self._step_threads.close()
        await self.end_processes()
        await self._transactions.aclose()
        self._connections.close()

    async def _tend(self) -> None:
        """Hand prefetched jobs back when nothing has moved for a second: others may be free to run them."""
        while True:
            ended = [runner.ended for runner in self.runners]
            await asyncio.sleep(1)
            for runner, fetcher, before in zip(self.runners, self.fetchers, ended, strict=True):
                if runner.ended == before and runner.waiting:
                    fetcher.slow_down()
                    self._hand_back(runner.give_back())

    async def _watch_lease(self) -> None:
        assert self._lease is not None
        switchovers = self._app.database.switchovers
        seen = switchovers.count
        while not self._failed.done():
            await asyncio.wait([self._failed], timeout=_LEASE_LOOK)
            self._lease.check()
            if seen != switchovers.count:
                # Another connection found that the server takes no writes. These may be idle, and would get no error.
                seen = switchovers.count
                self._lease.renew_now()
                self._listener.reconnect()
                self._connections.leave_old_server()
        await self._failed

    def _room(self) -> int:
        """How many more jobs may be claimed."""
        waiting = sum(len(runner.waiting) for runner in self.runners)
        return self.pools.slots + _MOST_HELD - waiting - self.outcomes.count

    def _refuse(self, job: ClaimedJob, outcome: Outcome) -> None:
        """A job was claimed that cannot be run."""
        self.outcomes.add(job, self._app.tasks[job.task].for_job(job), outcome)

    def _known_jobs(self) -> list[ClaimedJob]:
        return [*(job for runner in self.runners for job in runner.jobs), *self.outcomes.jobs]

    def _count(self, job: ClaimedJob, outcome: Outcome | None, seconds: float) -> None:
        self.stats.count(job, outcome, seconds)

    def _wrote(self) -> None:
        for fetcher in self.fetchers:
            fetcher.freed()

    def _process_said(self, job_id: str, text: str) -> None:
        for runner in self.runners:
            runner.process_said(job_id, text)

    def _ready_at(self, queue: str, place: Place) -> None:
        pool = self.pools.pool_of(queue)
        if pool is not None:
            self.fetchers[pool].heard(queue, place)

    def _first_ready(self, first: FirstReady) -> None:
        pool = self.pools.pool_of(first.queue)
        if pool is not None:
            self.fetchers[pool].found(first.queue, Place(Position(first.rank, first.run_at), first.last_rank))

    def _hearing(self, hears: bool) -> None:
        if self._lease is not None:
            self._lease.hurry(not hears)
        self._upkeep.set_deaf(not hears)
        self._lookout.set_deaf(not hears)

    def _gained(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self._undeclared.set()
        for fetcher in self.fetchers:
            fetcher.lease_gained()
        self._lookout.look()

    def _lost(self, unanswered: bool) -> None:
        self._events.emit(LeaseLost(self.worker_id or "?", self.running))
        self.worker_id = None
        for runner in self.runners:
            runner.give_back()
        self.stop_all("lease")
        if unanswered:
            # What hangs now could hang for a quarter of an hour, long after the network is back.
            self._connections.sever()
            self._listener.reconnect()
            for runner in self.runners:
                runner.sever()

    def _lease_gone(self) -> None:
        assert self._lease is not None
        self._lease.renew_now()

    def _lease_failed(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _lease_stumbled(self, error: Exception) -> None:
        tell(self._events, "renewing the lease", error)

    def _cancel_asked(self, worker_id: str) -> None:
        # Anybody may notify: what is to be cancelled is what the database says, and a renewal asks it.
        if self._lease is not None and worker_id == self.worker_id:
            self._lease.renew_now()

    def _control_asked(self) -> None:
        if self._lease is not None:
            self._lease.renew_now()

    def _obey(self, orders: Orders) -> None:
        self._cancel(orders.cancelling)
        paused = PauseChanged(orders.paused, tuple(orders.paused_queues), tuple(orders.paused_tasks))
        if paused != self._paused:
            self._paused = paused
            self._events.emit(paused)
            self._lookout.look()  # something may have been resumed
        if paused.everything or paused.queues or paused.tasks:
            # What was claimed before, and waits for a slot, waits no longer here.
            self.hand_back(lambda job: paused.everything or job.queue in paused.queues or job.task in paused.tasks)
        if orders.stopping and not self._stopping:
            self._stopping = True
            self._events.emit(StopAsked())
            self._stop()

    def _cancel(self, job_ids: list[str]) -> None:
        known = [any(runner.stop(job_id, "cancel") for runner in self.runners) for job_id in job_ids]
        if not all(known) and self._lease is not None:
            # Its claim may still be on its way to us.
            asyncio.get_running_loop().call_later(_ARRIVAL_PAUSE, self._lease.renew_now)

    def _blocked(self, length: float, stack: str) -> None:
        run = next((run for runner in self.runners if (run := runner.on_loop())), None)
        self._events.emit(LoopBlocked(length, run.job.task if run else None, run.job.id if run else None, stack))
