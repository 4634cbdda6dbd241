"""The worker as its user sees it: start it, stop it, subscribe to its events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install
from stepwell.postgres.errors import where
from stepwell.resources.opened import WorkerResources, use
from stepwell.telemetry.bus import EventBus, Telemetry
from stepwell.telemetry.worker import WorkerStarted, WorkerStopped
from stepwell.values.duration import Duration, seconds
from stepwell.values.public_call import public_call
from stepwell.worker.claiming.balance import Balance, BalanceOption
from stepwell.worker.claiming.pools import check_concurrency, read_pools
from stepwell.worker.draining import drain, end_interrupted, leave
from stepwell.worker.hooks import Hooks
from stepwell.worker.loops import any_failed, end_loops, first_error, is_of
from stepwell.worker.options import WorkerOptions
from stepwell.worker.process import refuse_in_process
from stepwell.worker.starting import once_database_is_there
from stepwell.worker.status import WorkerStatus
from stepwell.worker.worker_run import WorkerRun

_ALWAYS_REPLAY = "STEPWELL_ALWAYS_REPLAY"

T = TypeVar("T")


class Worker:
    """Runs an app's jobs. `async with Worker(app):` runs it beside your code; `await Worker(app).run()` until stopped.

    It claims from `queues`, by default those its tasks name, and runs up to `concurrency` jobs at once, by default 10.
    Of jobs with `process=True` it runs up to `process_slots`, by default as many as there are cores. A queue that ends
    with * matches every queue with that prefix. Given as a dict, `{"mail": 2, "*": 20}`, each queue has slots of its
    own: they are kept free for it, and it gets no others. A job runs in the slots of the longest name that matches its
    queue. Queues that share slots take turns, however deep one is. `balance="strict"` empties them in the given order
    instead, and `balance={"mail": 3, "*": 1}` gives each a weight.

    On `stop` the worker claims no more and waits up to `grace` for running jobs. It then asks the others to stop and
    hands them back, no attempt used.
    `lease` is how long other workers wait before they take over the jobs of a worker that falls silent; a worker that
    dies is noticed sooner. `poll` is how often the worker looks for jobs without being notified. `max_held_size` bounds
    the bytes it holds: args, metadata and saved steps of jobs that run or wait for a slot, and outcomes not yet
    written. At that limit it claims no more; a pool without jobs may still claim one of any size. With `always_replay`
    (or STEPWELL_ALWAYS_REPLAY=1) every durable job is suspended after each step and replayed: slow, and meant for tests
    of handlers.

    If the database is away when the worker starts, it logs that once and waits. Permanent errors, such as a wrong
    password or a missing schema, are raised at once. With `wait=False` it also raises if the database is away.
    """

    _batches_wait = True

    @public_call("Worker")
    def __init__(
        self,
        app: App,
        *,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        concurrency: int | None = None,
        balance: BalanceOption = "round_robin",
        process_slots: int | None = None,
        grace: Duration = "30s",
        lease: Duration = "20s",
        renew: Duration = "5s",
        poll: Duration = "2s",
        blocked_after: Duration = "1s",
        max_held_size: int = 256 * 1024 * 1024,
        always_replay: bool | None = None,
        wait: bool = True,
    ) -> None:
        pools = None if queues is None else read_pools(queues, concurrency)
        slots = pools.slots if pools else check_concurrency(concurrency)
        self._options = WorkerOptions(
            pools=pools,
            concurrency=slots,
            balance=Balance(balance),
            process_slots=min(slots, os.cpu_count() or 1) if process_slots is None else process_slots,
            grace=seconds(grace, "grace"),
            lease=seconds(lease, "lease"),
            renew=seconds(renew, "renew"),
            poll=seconds(poll, "poll"),
            blocked_after=seconds(blocked_after, "blocked_after"),
            max_held_size=max_held_size,
            always_replay=os.environ.get(_ALWAYS_REPLAY) == "1" if always_replay is None else always_replay,
            wait=wait,
            batches_wait=self._batches_wait,
        )
        if not isinstance(app, App):
            raise ConfigError(f"Worker takes an App, not {app!r}")
        self._app = app
        self._events = EventBus(app.events)
        self._stop_asked = asyncio.Event()
        self._now_asked = asyncio.Event()
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._took_body_down = False
        self._current: WorkerRun | None = None
        self._runs = False

    @property
    def id(self) -> str | None:
        """The id under which the worker is registered now; None while it holds no lease."""
        return self._current.worker_id if self._current else None

    @property
    def runs_ended(self) -> int:
        """How many runs of jobs have ended, however they went, since the worker started; 0 while it does not run."""
        return self._current.slots.ended if self._current else 0

    @property
    def stopping(self) -> bool:
        """Whether the worker was asked to stop and has not ended yet."""
        return self._stop_asked.is_set()

    def status(self) -> WorkerStatus | None:
        """What the worker is doing at this moment; None: it does not run, or still waits for its database. Any thread
        may ask."""
        run = self._current
        return None if run is None else run.status(stopping=self.stopping)

    async def outcomes_counted(self) -> None:
        """Wait until each outcome that the database has by now is counted: whoever waits for a result may have it
        before the worker knows that it is written."""
        if (run := self._current) is not None:
            await run.outcomes.flushed()
            await run.slots.committed()

    def subscribe(self, receive: Callable[[Telemetry], None]) -> None:
        """Call `receive` with each event. It must not block, and may be called in any thread."""
        self._events.subscribe(receive)

    def stop(self) -> None:
        """Claim no more, wait for running jobs, then end. Safe to call twice; from other threads use the loop."""
        self._stop_asked.set()

    def stop_now(self) -> None:
        """Stop without waiting: running jobs are asked to stop and are handed back."""
        self._now_asked.set()
        self._stop_asked.set()

    async def started(self) -> None:
        """Wait until the worker has registered and claims jobs."""
        await self._started.wait()

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError("a worker runs in async code: write 'async with Worker(app):', or run 'stepwell worker'")

        __exit__ = __enter__

    async def __aenter__(self) -> Self:
        body = asyncio.current_task()
        running = self._task = asyncio.create_task(self.run(), name="stepwell-worker")
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait([running, started], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end_now(running)
            raise
        finally:
            started.cancel()
        if running.done():
            await running  # raises the reason

        def ended(running: asyncio.Task[None]) -> None:
            # A worker that dies takes the code beside it down, which would otherwise wait for ever.
            if not running.cancelled() and running.exception() is not None and self._task and body:
                self._took_body_down = body.cancel()

        running.add_done_callback(ended)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        running, self._task = self._task, None
        assert running is not None
        if kind is not None and issubclass(kind, asyncio.CancelledError | KeyboardInterrupt):
            self.stop_now()
        self.stop()
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await self._end_now(running)
            raise
        body = asyncio.current_task()
        if self._took_body_down and body is not None:
            body.uncancel()
        await running

    async def _end_now(self, running: asyncio.Task[None]) -> None:
        self.stop_now()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # looked at, so that asyncio does not report it, too

    async def run(self) -> None:
        """Run jobs until stopped. Raises only errors that a person must fix, with a message that says what to do."""
        if self._runs:
            raise ConfigError("this worker runs already")
        self._runs = True
        try:
            await self._run()
        finally:
            self._runs = False
            # It may be run again.
            for event in (self._started, self._stop_asked, self._now_asked):
                event.clear()

    async def _run(self) -> None:
        refuse_in_process()
        tasks = self._app.tasks
        for task in tasks.values():
            task.prepare()
        if any(task.uses_processes for task in tasks.values()) and find_spec("pebble") is None:
            raise ConfigError(f"tasks with process=True need pebble: {how_to_install('process')}")
        if not tasks:
            raise ConfigError("the app has no tasks: import the modules that define them before the worker starts")
        self._app.start_plugins()
        started = await self._app.plugins.start_worker(self)
        try:
            await self._run_hooked()
        finally:
            await self._app.plugins.stop_worker(self, started)

    async def _run_hooked(self) -> None:
        if not await self._once_there(self._is_ready):
            return
        resources = WorkerResources(self._app.resources, self._events)
        # Handlers have copies of this context.
        use(resources)
        hooks = Hooks(
            (*resources.openers, *self._app.start_hooks), (*resources.closers, *self._app.stop_hooks), self._events
        )
        try:
            if await hooks.start(self._stop_asked):
                await self._register_and_work()
        finally:
            await hooks.stop()

    async def _once_there(self, call: Callable[[], T]) -> T | None:
        return await once_database_is_there(
            call, self._app.database, self._events, self._stop_asked, wait=self._options.wait
        )

    def _is_ready(self) -> bool:
        self._app.database.ensure_ready(wait=False)
        return True

    async def _register_and_work(self) -> None:
        run = self._current = WorkerRun(self._app, self._options, self._events, self.stop)
        try:
            try:
                if (worker_id := await self._once_there(run.lease.start)) is not None:
                    run.worker_id = worker_id
                    await run.schedules.put()
                    await run.warn_of_rivals()
                    await run.warn_of_queues()
                    await self._work(run, worker_id)
            finally:
                await leave(run)
        finally:
            await run.close()
            self._current = None

    async def _work(self, run: WorkerRun, worker_id: str) -> None:
        stopped_by: BaseException | None = None
        loops: list[asyncio.Task[None]] = []
        try:
            run.logs.open()
            await run.prepare()
            async with asyncio.TaskGroup() as group:
                loops += [group.create_task(loop) for loop in run.loops()]
                claiming = [group.create_task(loop) for loop in run.claiming()]
                loops += claiming
                self._announce(run, worker_id)
                self._started.set()
                try:
                    stopped_by = await self._until_stop_asked(loops)
                    try:
                        if isinstance(stopped_by, KeyboardInterrupt):
                            raise stopped_by
                        await drain(run, claiming, self._options, self._events, self._now_asked)
                    except (asyncio.CancelledError, KeyboardInterrupt):
                        await end_interrupted(run, loops)
                        raise
                    await run.stats.write()
                    await run.logs.finish()
                finally:
                    # Also when one of them failed: the group cancels the others only once, and waits for loops that
                    # swallowed the cancel, while the lease is renewed.
                    await end_loops(loops)
        except BaseExceptionGroup as failed:
            raise first_error(failed) from None
        except KeyboardInterrupt as error:
            if is_of(error, loops):
                # The script has it already: raised again, it would end the script before that has cleaned up.
                raise asyncio.CancelledError from None
            raise
        finally:
            run.logs.close()
        self._events.emit(WorkerStopped(run.outcomes.succeeded, run.outcomes.failed))
        if stopped_by is not None:
            raise stopped_by

    async def _until_stop_asked(self, loops: Collection[asyncio.Task[None]]) -> BaseException | None:
        """Wait until the worker is asked to stop. Returns the cancel or the Ctrl-C that asked it; None: a call did. If
        one of the loops has failed, raises the cancel of the task group: jobs are not handed back then, because a
        worker that cannot go on has most likely lost its database."""
        try:
            await self._stop_asked.wait()
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            if any_failed(loops):
                raise
            self._now_asked.set()
            return error
        return None

    def _announce(self, run: WorkerRun, worker_id: str) -> None:
        pools = run.pools
        slots = () if pools.shared else tuple(pool.slots for pool in pools.all)
        database = where(self._app.dsn)
        self._events.emit(
            WorkerStarted(
                worker_id,
                tuple(pools.queues),
                tuple(self._app.tasks),
                pools.slots,
                database,
                slots,
                tuple(name for name, task in self._app.tasks.items() if task.retired),
            )
        )
