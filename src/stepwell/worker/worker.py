"""The worker as one sees it: start it, stop it, and what it does in between."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Self, TypeVar

from stepwell.app import App
from stepwell.errors import ConfigError, StepwellError
from stepwell.postgres.errors import in_short, is_transient, where
from stepwell.postgres.threads import in_thread
from stepwell.telemetry.events import (
    DatabaseAwaited,
    Event,
    Events,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from stepwell.values.duration import Duration, seconds
from stepwell.worker.claiming.balance import Balance, BalanceOption
from stepwell.worker.claiming.pools import Pools, check_concurrency, read_pools
from stepwell.worker.hooks import Hooks
from stepwell.worker.worker_run import Crew

_ALWAYS_REPLAY = "STEPWELL_ALWAYS_REPLAY"
_CANCEL_PATIENCE = 5.0
_CANCEL_AGAIN = 0.2
_START_PAUSE = 0.5

T = TypeVar("T")


class Worker:
    """Runs an app's jobs. `async with Worker(app):` runs it beside your code; `await Worker(app).run()` until stopped.

    It claims from `queues`, by default those its tasks name, and runs up to `concurrency` jobs at once, by default 10,
    of those with `process=True` up to `process_slots`, by default as many as there are cores. A queue that ends with *
    stands for all that begin so. Given as a dict, `{"mail": 2, "*": 20}`, each has slots of its own, which are kept
    free for it and are all it gets; a job runs in those of the longest name that fits its queue. Queues that share
    slots take turns, however deep one is: `balance="strict"` empties them in the order given instead, and `{"mail": 3,
    "*": 1}` gives each a weight.

    On `stop` it claims no more and waits up to `grace` for what runs; the rest is asked to stop and handed back, no
    attempt used.
    `lease` is how long others wait before they take over its jobs when it falls silent; a worker that dies is noticed
    sooner. `poll` is how often it looks without being told. `max_held_size` bounds, in bytes, what it holds: the args,
    metadata and saved steps of jobs that run or are about to, and outcomes not yet written. When that is reached it
    claims no more; a pool without jobs may claim one, whatever its size. With `always_replay` (or
    STEPWELL_ALWAYS_REPLAY=1) every durable job is suspended after each step and run anew: slow, and meant for tests of
    handlers.

    If the database is away when the worker starts, it logs that once and waits; permanent errors, such as a wrong
    password or a missing schema, are raised at once. With `wait=False` the database being away is raised, too.
    """

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
        if isinstance(max_held_size, bool) or not isinstance(max_held_size, int) or max_held_size < 1:
            raise ConfigError(f"max_held_size is {max_held_size!r}: it must be a number of bytes, 1 or more")
        self._max_held_size = max_held_size
        if process_slots is not None and (
            isinstance(process_slots, bool) or not isinstance(process_slots, int) or not 1 <= process_slots <= 1000
        ):
            raise ConfigError(f"process_slots is {process_slots!r}: it must be a whole number between 1 and 1000")
        if not isinstance(app, App):
            raise ConfigError(f"Worker takes an App, not {app!r}")
        self._app = app
        self._pools = None if queues is None else read_pools(queues, concurrency)
        self._concurrency = self._pools.slots if self._pools else check_concurrency(concurrency)
        self._balance = Balance(balance)
        if self._pools is not None:
            self._balance.check(self._pools)
        self._process_slots = process_slots or min(self._concurrency, os.cpu_count() or 1)
        self._grace = seconds(grace, "grace")
        self._lease = seconds(lease, "lease")
        self._renew = seconds(renew, "renew")
        self._poll = seconds(poll, "poll")
        self._always_replay = os.environ.get(_ALWAYS_REPLAY) == "1" if always_replay is None else always_replay
        self._blocked_after = seconds(blocked_after, "blocked_after")
        self._wait = wait
        if not 0 < self._renew <= self._lease / 3:
            raise ConfigError(
                f"renew is {renew!r} and lease {lease!r}: a lease must be at least three times the renewal"
            )
        if self._poll <= 0:
            raise ConfigError("poll is 0: it must be more")
        self._events = Events()
        self._stop_asked = asyncio.Event()
        self._now_asked = asyncio.Event()
        self._started = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._took_body_down = False
        self._crew: Crew | None = None
        self._runs = False

    @property
    def id(self) -> str | None:
        """The id under which it is registered now; None while it holds no lease."""
        return self._crew.worker_id if self._crew else None

    @property
    def runs_ended(self) -> int:
        """How many runs of jobs have ended, however they went, since it was started; 0 while it does not run."""
        return self._crew.runs_ended if self._crew else 0

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop and has not ended yet."""
        return self._stop_asked.is_set()

    def subscribe(self, receive: Callable[[Event], None]) -> None:
        """Call `receive` with each event. It must not block, and may be called in any thread."""
        self._events.subscribe(receive)

    def stop(self) -> None:
        """Claim no more, wait for what runs, then end. Safe to call twice; from other threads use the loop."""
        self._stop_asked.set()

    def stop_now(self) -> None:
        """Stop, and do not wait: running jobs are asked to stop and are handed back."""
        self._now_asked.set()
        self._stop_asked.set()

    async def started(self) -> None:
        """Wait until the worker has registered and claims jobs."""
        await self._started.wait()

    async def __aenter__(self) -> Self:
        body = asyncio.current_task()
        running = self._running = asyncio.create_task(self.run(), name="stepwell-worker")
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait([running, started], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.stop_now()
            await asyncio.wait([running])
            raise
        finally:
            started.cancel()
        if running.done():
            await running  # raises why it did not start

        def ended(running: asyncio.Task[None]) -> None:
            # A worker that dies takes the code beside it down, or that would wait for ever.
            if not running.cancelled() and running.exception() is not None and self._running and body:
                self._took_body_down = body.cancel()

        running.add_done_callback(ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running = self._running, None
        assert running is not None
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            self.stop_now()
        self.stop()
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            self.stop_now()
            await asyncio.wait([running])
            raise
        body = asyncio.current_task()
        if self._took_body_down and body is not None:
            body.uncancel()
        await running

    async def run(self) -> None:
        """Run jobs until stopped. Raises only what a person must fix, with a message that says what."""
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
        for task in self._app.tasks.values():
            task.codec.prepare()
        if any(task.uses_processes for task in self._app.tasks.values()) and not _installed("pebble"):
            raise ConfigError("tasks with process=True need pebble: pip install 'stepwell[process]'")
        if not self._app.tasks:
            raise ConfigError("the app has no tasks: import the modules that define them before the worker starts")
        if not await self._once_there(self._is_ready):
            return
        hooks = Hooks(tuple(self._app.start_hooks), tuple(self._app.stop_hooks), self._events)
        try:
            if await hooks.start(self._stop_asked):
                await self._run_crew()
        finally:
            await hooks.stop()

    async def _run_crew(self) -> None:
        crew = self._crew = Crew(
            self._app,
            self._events,
            self._the_pools(),
            self._balance,
            self._process_slots,
            self._poll,
            self.stop,
            max_held_size=self._max_held_size,
            always_replay=self._always_replay,
        )
        lease = crew.lease_for(self._lease, self._renew, self._blocked_after)
        try:
            try:
                if (worker_id := await self._once_there(lease.start)) is not None:
                    crew.worker_id = worker_id
                    await crew.declare_schedules()
                    await crew.warn_of_rivals()
                    await self._work(crew)
            finally:
                await crew.end_processes()
                await in_thread(lease.stop)
        finally:
            await crew.close()
            self._crew = None

    async def _once_there(self, call: Callable[[], T]) -> T | None:
        """Make a call until the database is there for it. None: the worker was asked to stop before."""
        said = False
        stopping = asyncio.ensure_future(self._stop_asked.wait())
        try:
            while True:
                made = asyncio.ensure_future(in_thread(call))
                try:
                    await asyncio.wait([made, stopping], return_when=asyncio.FIRST_COMPLETED)
                    if not made.done():
                        return None
                    return made.result()
                except StepwellError as error:
                    cause = error.__cause__
                    if not self._wait or cause is None or not is_transient(cause):
                        raise
                    if not said:
                        said = True
                        self._events.emit(DatabaseAwaited(where(self._app.database.dsn), in_short(cause)))
                finally:
                    made.cancel()
                await asyncio.wait([stopping], timeout=_START_PAUSE * random.uniform(0.5, 1))  # noqa: S311
                if stopping.done():
                    return None
        finally:
            stopping.cancel()

    def _is_ready(self) -> bool:
        self._app.database.ensure_ready(wait=False)
        return True

    async def _work(self, crew: Crew) -> None:
        assert crew.worker_id is not None
        cancelled = False
        try:
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(loop) for loop in crew.loops()]
                fetching = [group.create_task(loop) for loop in crew.fetching()]
                self._events.emit(
                    WorkerStarted(
                        crew.worker_id,
                        tuple(crew.pools.queues),
                        tuple(self._app.tasks),
                        self._concurrency,
                        where(self._app.dsn),
                        () if crew.pools.shared else tuple(pool.slots for pool in crew.pools.all),
                    )
                )
                self._started.set()
                try:
                    try:
                        await self._stop_asked.wait()
                    except asyncio.CancelledError:
                        if any(loop.done() for loop in [*loops, *fetching]):
                            raise  # one of them failed, and the group is coming down
                        cancelled = True
                        self._now_asked.set()
                    crew.stop_fetching()
                    await asyncio.gather(*fetching)
                    await crew.settle()
                    await self._drain(crew)
                    await crew.stats.write()
                finally:
                    # Also when one of them failed: the group cancels the others once, and waits for those that
                    # swallowed it while the lease is renewed.
                    await _end([*loops, *fetching])
        except BaseExceptionGroup as failed:
            raise _the_one(failed) from None
        self._events.emit(WorkerStopped(crew.outcomes.succeeded, crew.outcomes.failed))
        if cancelled:
            raise asyncio.CancelledError

    async def _drain(self, crew: Crew) -> None:
        crew.hand_back()
        self._events.emit(WorkerStopping(crew.running, self._grace))
        idle = asyncio.ensure_future(crew.idle())
        now = asyncio.ensure_future(self._now_asked.wait())
        await asyncio.wait([idle, now], timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        if not idle.done():
            crew.stop_all("shutdown")
            await asyncio.wait([idle], timeout=_CANCEL_PATIENCE)
            crew.abandon_all()
        idle.cancel()
        try:
            await asyncio.wait_for(crew.outcomes.written(), self._lease)
        except TimeoutError:
            raise StepwellError(_unwritten(crew.outcomes.count, crew.outcomes.locked)) from None

    def _the_pools(self) -> Pools:
        if self._pools is not None:
            return self._pools
        queues = sorted({queue for task in self._app.tasks.values() for queue in task.queues} | {self._app.queue})
        for queue in queues:
            if "*" in queue:
                raise ConfigError(f"a task's queue is {queue!r}: a * stands for any name here, so say which queues=")
        pools = read_pools(queues, self._concurrency)
        self._balance.check(pools)
        return pools


def _unwritten(count: int, locked: int) -> str:
    outcomes, jobs = ("1 outcome", "its job") if count == 1 else (f"{count} outcomes", "those jobs")
    if locked < count:
        return f"stopped with {outcomes} that could not be written, the database being away: {jobs} will run again"
    return (
        f"stopped with {outcomes} that could not be written, {jobs} being locked by other sessions, which the log "
        "names: those jobs run again when these sessions let go"
    )


def _installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


async def _end(loops: Collection[asyncio.Task[None]]) -> None:
    """Cancel until they have ended: before Python 3.12 `asyncio.wait_for`, which psycopg uses, may swallow a cancel."""
    while left := [loop for loop in loops if not loop.done()]:
        for loop in left:
            loop.cancel()
        await asyncio.wait(left, timeout=_CANCEL_AGAIN)


def _the_one(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error behind a group, if there is one that tells the others' cause."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _the_one(error)  # pyright: ignore[reportUnknownArgumentType]
        return error
    return group
