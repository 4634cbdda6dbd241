"""The crash sweep: run a job, kill its worker at each write, resume, and compare the end with a run without faults."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Self

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.jobs.enqueuer import Call
from stepwell.jobs.handle import JobHandle
from stepwell.postgres.queries import testing as queries
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.testing.clock import Clock, StoppedClock
from stepwell.testing.crash_injection import WHENS, CrashPoint
from stepwell.testing.sweep_result import Ending, Sweep, SweepFailed, compare
from stepwell.testing.sweep_workers import SweepWorkers

Effects = Callable[[JobHandle[Any]], Any]
"""Returns the effects of a job outside Stepwell, as a value that can be compared. Called when all jobs have ended."""
Answer = Callable[[JobHandle[Any]], bool]
"""Called whenever no job runs or is ready: emit or send what the job waits for and return True, or return False to skip
the clock to the next due time."""

_CHECK_EVERY = 0.003
# A run that writes more than this, or this many times as often as the run without faults, is stuck in a loop.
_MANY_WRITES = 20_000
_MANY_TIMES = 20
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class CrashSweep:
    """Sweeps over jobs of one app, with worker processes that import it as `program`, such as "shop.jobs:app".

    Only for test databases: it stops the clock, skips over waits, and expects that no other worker runs. `crash_sweep`
    does the same for a single job.
    """

    def __init__(self, app: App, *, program: str | None = None) -> None:
        self._app = app
        self._program = _find_program(app) if program is None else program
        self._workers: SweepWorkers | None = None
        self._settings: dict[str, Any] = {}
        self._clock = Clock(app)
        self._stopped: StoppedClock | None = None
        self._opened_here = ExitStack()

    def __enter__(self) -> Self:
        refuse_in_event_loop("CrashSweep", "asyncio.to_thread(...) with it")
        with ExitStack() as stack:
            self._workers = stack.enter_context(closing(SweepWorkers(self._program)))
            self._stopped = stack.enter_context(self._clock)
            self._began = self._stopped.now()
            self._opened_here = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened_here.close()

    def run(
        self,
        call: Call[Any],
        *,
        effects: Effects | None = None,
        answer: Answer | None = None,
        sample: int | None = None,
        twice: int = 0,
        seed: int | None = None,
        points: Iterable[CrashPoint | Sequence[CrashPoint]] | None = None,
        concurrency: int = 10,
        always_replay: bool = False,
        patience: float = 20.0,
    ) -> Sweep:
        """Run the call without faults, then once for each crash point, and compare.

        `sample` picks that many points at random, the same for the same `seed`. `twice` adds that many runs in which
        the worker that resumes is killed, too. `points` names the points instead. Raises `SweepFailed` if anything
        differs. A crash uses an attempt and repeats a step that was not saved, so the task needs spare attempts, and
        `effects` should count the effect of a plain step once, however often it happened. A run fails after `patience`
        seconds without a write, however long it takes as a whole.
        """
        began = time.monotonic()
        settings = {"concurrency": concurrency, "always_replay": always_replay}
        workers, _ = self._opened()
        if settings != self._settings:
            workers.kill()
            self._settings = settings
        try:
            ending, _ = self._once(call, (), effects, answer, patience, _MANY_WRITES)
        except _Stuck as stuck:
            self._clear(workers)
            raise SweepFailed(call.task.name, 0, [f"  without a fault: {stuck}"]) from None
        writes, claims = workers.writes()
        sweep = Sweep(ending, writes)
        every = [
            CrashPoint(write, when)
            for write in range(1, writes + 1)
            for when in WHENS
            # A claim counts as a write only if it returned jobs, which is known once it is committed.
            if when == "committed" or write not in claims
        ]
        dice = random.Random(seed)  # noqa: S311 None: a new seed each time
        chosen = _choose(every, sample, twice, dice) if points is None else _listed(points)
        differences: list[str] = []
        for places in chosen:
            try:
                found, deaths = self._once(call, places, effects, answer, patience, _MANY_TIMES * (writes + 10))
            except _Stuck as stuck:
                differences.append(f"  {_describe(places, workers)}:\n    {stuck}")
                self._clear(workers)
                break
            if deaths:
                sweep.killed.append(places[:deaths])
            if found != ending:
                differences.append(f"  {_describe(places, workers)}:\n{compare(ending, found)}")
        sweep.seconds = time.monotonic() - began
        if differences:
            raise SweepFailed(call.task.name, len(chosen), differences)
        return sweep

    def _once(
        self,
        call: Call[Any],
        places: tuple[CrashPoint, ...],
        effects: Effects | None,
        answer: Answer | None,
        patience: float,
        most_writes: int,
    ) -> tuple[Ending, int]:
        """Run the call and kill workers at these points. Returns how the job ended, and how many workers died."""
        workers, clock = self._opened()
        database = self._app.database
        workers.deaths.clear()
        clock.set(self._began)  # all runs start at the same time
        workers.arm(places[0] if places else None)
        job = call.task.job_store.enqueue(call, None)
        deadline = time.monotonic() + patience
        deaths = written = 0
        while True:
            if time.monotonic() > deadline:
                # The total time depends on the job and the machine, so only progress counts.
                before, written = written, workers.writes()[0]
                if written == before:
                    raise _Stuck(f"nothing was written for {patience:g} s: {self._live_jobs()}")
                if written > most_writes:
                    raise _Stuck(f"the job has written {written} times and has not ended: {self._live_jobs()}")
                deadline = time.monotonic() + patience
            if workers.pid is None:
                workers.start(self._app.dsn, **self._settings)
            workers.check(_CHECK_EVERY)
            if len(workers.deaths) > deaths:
                deaths = len(workers.deaths)
                workers.arm(places[deaths] if deaths < len(places) else None)
            if workers.dead:
                # A statement that a dead worker sent may still lock its jobs, so this may take several rounds.
                database.fetch(queries.declare_dead(workers.dead))
                database.fetch(queries.rescue_all())
                if not database.fetch(queries.any_registered(workers.dead))[0]:
                    workers.dead.clear()
                continue
            [(busy, left)] = database.fetch(queries.busy_and_left())
            if busy or (left and ((answer is not None and answer(job)) or clock.skip())):
                continue
            found = self._ended(job, within=0.0 if left else 2.0)
            if found is None:
                raise _Stuck(f"nothing is left to run, and the job has not ended: {self._live_jobs()}")
            if deaths < len(places) and workers.writes()[0] >= places[deaths].write and workers.await_death():
                continue  # the worker dies at the last write
            state, result, error = found
            done = effects(job) if effects is not None else None
            return Ending(state, result, None if error is None else _ID.sub("(id)", error), done), deaths

    def _clear(self, workers: SweepWorkers) -> None:
        """Delete a job that does not end, which would disturb the next sweep."""
        workers.kill()
        workers.dead.clear()
        self._app.database.fetch(queries.delete_live_jobs())

    def _ended(self, job: JobHandle[Any], within: float) -> Any:
        """How the job ended. A row that was just moved to another partition of history can be invisible for a moment
        to a query that waited for the move."""
        deadline = time.monotonic() + within
        while not (found := self._app.database.fetch(queries.ended_job(str(job.id)))) and time.monotonic() < deadline:
            time.sleep(_CHECK_EVERY)
        return found[0] if found else None

    def _live_jobs(self) -> str:
        rows = self._app.database.fetch(queries.live_jobs())
        return ", ".join(f"{task} is {state}" for state, task in rows) or "no job is live"

    def _opened(self) -> tuple[SweepWorkers, StoppedClock]:
        if self._workers is None or self._stopped is None:
            raise ConfigError("a CrashSweep works only in its block: with CrashSweep(app) as sweep: sweep.run(...)")
        return self._workers, self._stopped


def crash_sweep(
    app: App,
    call: Call[Any],
    *,
    program: str | None = None,
    effects: Effects | None = None,
    answer: Answer | None = None,
    sample: int | None = None,
    twice: int = 0,
    seed: int | None = None,
    concurrency: int = 10,
    always_replay: bool = False,
    patience: float = 20.0,
) -> Sweep:
    """Run a call, such as `order.call(7)`; kill its worker's process at each write, resume, and compare how the job
    ended, and its `effects`, with a run without faults. Raises `SweepFailed` if anything differs.

    `program` is where worker processes find the app, such as "shop.jobs:app"; by default, the loaded modules are
    searched for it. The other parameters are those of `CrashSweep.run`.
    """
    with CrashSweep(app, program=program) as sweep:
        return sweep.run(
            call,
            effects=effects,
            answer=answer,
            sample=sample,
            twice=twice,
            seed=seed,
            concurrency=concurrency,
            always_replay=always_replay,
            patience=patience,
        )


class _Stuck(Exception):
    pass


def _choose(
    every: list[CrashPoint], sample: int | None, twice: int, dice: random.Random
) -> list[tuple[CrashPoint, ...]]:
    chosen = every if sample is None or sample >= len(every) else sorted(dice.sample(every, sample))
    pairs = [tuple(dice.choices(every, k=2)) for _ in range(twice)] if every else []
    return [*((point,) for point in chosen), *pairs]


def _listed(points: Iterable[CrashPoint | Sequence[CrashPoint]]) -> list[tuple[CrashPoint, ...]]:
    return [(given,) if isinstance(given, CrashPoint) else tuple(given) for given in points]


def _describe(places: Sequence[CrashPoint], workers: SweepWorkers) -> str:
    named = [f"{place} ({at})" for place, at in zip(places, workers.deaths, strict=False)]
    return ", then ".join(named) or f"{places[0]}, which was never reached"


def _find_program(app: App) -> str:
    for name, module in sorted(sys.modules.items(), key=lambda item: item[0] != app.name):
        if name == "__main__":
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{name}:{attribute}"
    raise ConfigError(
        "crash_sweep cannot tell how worker processes import this app, because no module has it; "
        'give program="module:app"'
    )
