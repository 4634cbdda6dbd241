"""One run of a worker: its parts, wired together, and what the lease and the listener tell them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.app import App
from stepwell.errors.text import nearest
from stepwell.postgres import queries
from stepwell.postgres.queries.fleet import Orders
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import (
    LeaseLost,
    OutcomesUnwritten,
    PauseChanged,
    QueueUnknown,
    StopAsked,
    TasksShared,
)
from stepwell.values.job import ClaimedJob
from stepwell.values.policy import DEFAULT_KEEPS
from stepwell.worker.claiming.claims import Claims
from stepwell.worker.claiming.patterns import fits
from stepwell.worker.claiming.ready_poller import ReadyPoller
from stepwell.worker.claiming.ready_ranges import ReadyRange
from stepwell.worker.connections import Connections, Outage
from stepwell.worker.declared_schedules import DeclaredSchedules
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.lease import Lease, LeaseCallbacks
from stepwell.worker.listener import Listener, ListenerCallbacks
from stepwell.worker.loops import end_loops, keep_going, report_failure
from stepwell.worker.options import WorkerOptions
from stepwell.worker.outcomes.stats import Stats
from stepwell.worker.outcomes.writer import OutcomeWriter
from stepwell.worker.process import Processes
from stepwell.worker.registration import register_query
from stepwell.worker.run_log_writer import RunLogWriter
from stepwell.worker.script_end import ScriptEnd
from stepwell.worker.shared_parts import SharedParts
from stepwell.worker.slots import Slots
from stepwell.worker.status import WorkerStatus
from stepwell.worker.steps.step_store import StepStore
from stepwell.worker.steps.step_threads import StepThreads
from stepwell.worker.upkeep.admitter import Admitter
from stepwell.worker.upkeep.bulk_runner import BulkRunner
from stepwell.worker.upkeep.leadership import Leadership
from stepwell.worker.upkeep.promoter import Promoter
from stepwell.worker.upkeep.ticker import Ticker
from stepwell.worker.upkeep.upkeep import Upkeep
from stepwell.worker.worker_connection import WorkerConnection

_LEASE_LOOK = 0.25
_ARRIVAL_PAUSE = 0.5
_LAST_WRITE = 5.0


class WorkerRun:
    """The parts that live as long as one run of a worker. `stop` asks the worker to stop."""

    def __init__(self, app: App, options: WorkerOptions, events: EventBus, stop: Callable[[], None]) -> None:
        self._app = app
        self.pools = options.pools_for(app)
        self._events = events
        self._stop = stop
        self._stop_ordered = False
        self._paused = PauseChanged(False, (), ())
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The lease may fail when the run ends for another reason, and nobody waits for this any more.
        self._failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self._connections = Connections(app.database, Outage(events))
        self._duties = self._duty_runner("upkeep", slow=True)
        self.stats = Stats(self._duties, events, [task.name for task in app.tasks.values() if task.retired])
        self.schedules = DeclaredSchedules(app, self._duties, events)
        self.outcomes = OutcomeWriter(self._connection("outcomes"), events, self.stats.count)
        # A handler in a transaction holds a connection while it runs. It enqueues over the app's own pool.
        self._transactions = app.database.with_pool_of(options.concurrency, for_handlers=True)
        # Steps need threads of their own: handlers wait for them in the handlers' threads.
        self._step_threads = StepThreads()
        self._steps = StepStore(
            self._connection("steps"),
            self._transactions,
            app.max_result_size,
            self._step_threads,
            events,
            app.job,
            app.plugins,
            app.sealer,
        )
        self.logs = RunLogWriter(
            self._duty_runner("logs"), events, wanted=any(task.logs for task in app.tasks.values())
        )
        self.processes = Processes(options.process_slots, self.outcomes.report, self.logs.sink)
        shared = SharedParts(
            app,
            events,
            self.outcomes,
            self._steps,
            self.processes,
            self.logs,
            self._transactions,
            self._connection("settle"),
            options.always_replay,
            ScriptEnd(),
            options.batches_wait,
        )
        self.claims = Claims(self._connection("claim"), self._known_jobs, self._renew_lease, events)
        self.slots = Slots(shared, self.pools, options.balance, self.claims, options.max_held_size)
        self._poller = ReadyPoller(
            self._duty_runner("look", slow=True),
            lambda: self.worker_id,
            self.pools.queues,
            list(app.tasks),
            options.poll,
            self.slots.found,
        )
        self._leadership = Leadership()
        self._promoter = Promoter(self._duty_runner("due"), self._leadership, events, self._poller.promoted)
        self._admitter = Admitter(self._duty_runner("admit"), self._leadership)
        self._ticker = Ticker(self._duty_runner("ticks"), self._leadership)
        self._bulk_runner = BulkRunner(self._duty_runner("bulk", slow=True), self._leadership)
        keeps = {*DEFAULT_KEEPS, *(keep for task in app.tasks.values() for keep in (task.keep, task.keep_failed))}
        self._upkeep = Upkeep(
            self._duties, self._leadership, self._promoter, self._ticker, sorted(keeps), events, lambda: self.worker_id
        )
        self._listener = Listener(
            app.database,
            self._connection("self-test", slow=True),
            events,
            ListenerCallbacks(
                ready=self._poller.look,
                ready_at=self._notified,
                due=self._promoter.due_in,
                tick=self._ticker.look,
                blocked=self._admitter.blocked,
                bulk=self._bulk_runner.look,
                cancel=self._cancel_notified,
                control=self._renew_lease,
                hearing=self._hearing,
            ),
        )
        self.lease = Lease(
            app.database,
            register_query(app, self.pools, options.lease),
            options.lease,
            options.renew,
            options.blocked_after,
            lambda: self.slots.running,
            LeaseCallbacks(
                gained=self._lease_gained,
                lost=self._lease_lost,
                obey=self._obey,
                failed=self._lease_failed,
                stumbled=lambda error: report_failure(events, "renewing the lease", error),
                blocked=self.slots.loop_blocked,
                stack=self.slots.stack,
            ),
        )

    def _notified(self, queue: str, ready: ReadyRange) -> None:
        if not self.slots.notified(queue, ready):
            self._poller.dropped()

    def _connection(self, name: str, *, slow: bool = False) -> WorkerConnection:
        return WorkerConnection(name, self._connections, slow=slow)

    def _duty_runner(self, name: str, *, slow: bool = False) -> DutyRunner:
        return DutyRunner(self._connection(name, slow=slow), self._app.database, self._events)

    @property
    def worker_id(self) -> str | None:
        """The id under which the worker is registered now; None while it holds no lease."""
        return self.claims.worker_id

    @worker_id.setter
    def worker_id(self, worker_id: str | None) -> None:
        self.claims.worker_id = worker_id

    def status(self, *, stopping: bool) -> WorkerStatus:
        return WorkerStatus(
            self.worker_id,
            self.pools.slots,
            self.slots.running,
            self.slots.unstarted,
            self.outcomes.count,
            self.lease.left,
            self._listener.hears,
            self._leadership.leads,
            stopping,
        )

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "writing outcomes": self.outcomes.run,
            "listening": self._listener.run,
            "testing the listener": self._listener.test,
            "looking for ready jobs": self._poller.run,
            "promoting due jobs": self._promoter.run,
            "admitting blocked jobs": self._admitter.run,
            "working off bulk operations": self._bulk_runner.run,
            "upkeep": self._upkeep.run,
            "firing schedules": self._ticker.run,
            "putting in schedules": self.schedules.run,
            "counting": self.stats.run,
            "writing run logs": self.logs.run,
            "handing jobs back": self.slots.hand_back_stalled,
        }
        return [*(keep_going(name, loop, self._events) for name, loop in loops.items()), self._watch_lease()]

    async def prepare(self) -> None:
        """Do what must be done before the first claim."""
        await self._upkeep.prepare()

    async def write_and_hand_back_last(self) -> None:
        """Write the outcomes that are left, and hand back the jobs of a claim that was cut off, when the loops that do
        so have ended. If that takes long, other workers rescue the jobs."""
        writing = asyncio.create_task(self.outcomes.run())
        # First cut: psycopg would wait five more seconds for a silent server to cancel the statement.
        cutting = asyncio.get_running_loop().call_later(_LAST_WRITE, self._connections.sever)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WRITE + 0.1):
                await self.claims.hand_back_last(cut_off=True)
                await self.outcomes.written()
        cutting.cancel()
        await end_loops([writing])
        if self.outcomes.count:
            self._events.emit(OutcomesUnwritten(self.outcomes.count, self.outcomes.locked))

    def claiming(self) -> list[Coroutine[Any, Any, None]]:
        """A loop for each pool that claims until `slots.stop_fetching`."""
        return [keep_going("claiming jobs", fetcher.run, self._events) for fetcher in self.slots.fetchers]

    async def warn_of_rivals(self) -> None:
        """Log which other apps' workers may claim the same jobs. An app may be being renamed: do not stop."""
        named = self._app.owner is not None
        if self.worker_id is not None:
            for rival in (
                await self._duties.do("looking for tasks of two apps", queries.fleet.rivals(self.worker_id)) or []
            ):
                self._events.emit(TasksShared(self._app.name, rival.owner, tuple(rival.tasks), named))

    async def warn_of_queues(self) -> None:
        """Log which queues neither a task of the app nor a ready job has: their names may be mistyped."""
        known = {self._app.queue, *(queue for task in self._app.tasks.values() for queue in task.queues)}
        doubtful = [name for name in self.pools.queues if not any(fits(queue, name) for queue in known)]
        ready = doubtful and await self._duties.do("looking for ready jobs", queries.claims.ready_queues(doubtful))
        for name in doubtful:
            if not any(fits(queue, name) for queue in ready or []):
                self._events.emit(QueueUnknown(name, nearest(name, known) or ": check the spelling"))

    async def close(self) -> None:
        self.slots.stop_all("lease")
        self.slots.close()
        self._steps.close()
        self._step_threads.close()
        await self.processes.close()
        await self._transactions.aclose()
        self._connections.close()

    def _known_jobs(self) -> list[ClaimedJob]:
        return [*self.slots.jobs, *self.outcomes.jobs]

    def _renew_lease(self) -> None:
        self.lease.renew_now()

    async def _watch_lease(self) -> None:
        switchovers = self._app.database.switchovers
        seen = switchovers.count
        while not self._failed.done():
            await asyncio.wait([self._failed], timeout=_LEASE_LOOK)
            self.lease.check()
            if seen != switchovers.count:
                # Another connection found that the server takes no writes. These may be idle, and would get no error.
                seen = switchovers.count
                self.lease.renew_now()
                self._listener.reconnect()
                self._connections.leave_old_server()
        await self._failed

    def _hearing(self, hears: bool) -> None:
        self.lease.hurry(not hears)
        self._leadership.deaf = not hears
        self._promoter.look()
        self._poller.set_deaf(not hears)

    def _lease_gained(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.schedules.lease_regained(worker_id)
        self.slots.lease_gained()
        self._poller.look()

    def _lease_lost(self, unanswered: bool) -> None:
        self._events.emit(LeaseLost(self.worker_id or "?", self.slots.running))
        self.worker_id = None
        self.slots.drop_unstarted()
        self.slots.stop_all("lease")
        if unanswered:
            # Statements that hang now could hang for a quarter of an hour, long after the network is back.
            self._connections.sever()
            self._listener.reconnect()
            self.slots.sever()

    def _lease_failed(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _cancel_notified(self, worker_id: str) -> None:
        # Anybody may notify. The database says which jobs are to be cancelled, and a renewal asks it.
        if worker_id == self.worker_id:
            self.lease.renew_now()

    def _obey(self, orders: Orders) -> None:
        if not self.slots.cancel(orders.cancelling):
            # The claim of a job that is not here may still be on its way to us.
            asyncio.get_running_loop().call_later(_ARRIVAL_PAUSE, self.lease.renew_now)
        paused = PauseChanged(orders.paused, tuple(orders.paused_queues), tuple(orders.paused_tasks))
        if paused != self._paused:
            self._paused = paused
            self._events.emit(paused)
            self._poller.look()  # something may have been resumed
        if paused.everything or paused.queues or paused.tasks:
            # Jobs that were claimed before the pause, and wait for a slot, do not wait for it here.
            self.slots.hand_back(
                lambda job: paused.everything or job.queue in paused.queues or job.task in paused.tasks
            )
        if orders.stopping and not self._stop_ordered:
            self._stop_ordered = True
            self._events.emit(StopAsked())
            self._stop()
