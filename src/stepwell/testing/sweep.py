"""The crash sweep: run a job, kill its worker at each of its writes, resume, and compare with a run without faults."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from stepwell.app import App
from stepwell.errors import ConfigError, StepwellError
from stepwell.jobs.enqueuer import Call
from stepwell.jobs.handle import JobHandle
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.testing.clock import Clock, StoppedClock
from stepwell.testing.sabotage import WHENS, CrashPoint
from stepwell.testing.workers import Workers

Effects = Callable[[JobHandle[Any]], Any]
"""What a job has done outside, as a value that can be compared. Called when all jobs have ended."""
Answer = Callable[[JobHandle[Any]], bool]
"""Called whenever nothing runs and nothing is ready: emit or send what the job waits for, and return True. False: it
waits for a time, and that is skipped to."""

_LOOK_EVERY = 0.003
# A run that writes more, and so many times what the run without faults did, will not come to an end.
_MANY_WRITES = 20_000
_MANY_TIMES = 20
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDED = "select h.state::text, h.result, h.error from stepwell.history h where h.id = %s"
_BUSY = """
select exists (
  select from stepwell.job j
  where j.state in ('ready', 'running')
    or j.state in ('scheduled', 'waiting') and j.run_at <= stepwell.now()
), exists (select from stepwell.job)
"""
# Their leases would never end, since the clock stands; and one that died before its first renewal is missed by nobody.
_DECLARE_DEAD = "update stepwell.worker w set lease_until = 'epoch' where w.pid = any (%s) returning w.id"
_RESCUE = "select stepwell.rescue(0)"
_REGISTERED = "select exists (select from stepwell.worker w where w.pid = any (%s))"
# What does not end would be in the way of all that is swept afterwards.
_CLEAR = """
with gone as (delete from stepwell.job j returning j.id)
delete from stepwell.step s using gone g where s.job_id = g.id returning s.key
"""
_STANDING = "select j.state::text, j.task from stepwell.job j order by j.id limit 10"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run came out."""

    state: str
    result: Any
    error: str | None
    effects: Any


@dataclass(slots=True)
class Sweep:
    """What a sweep did: how the run without faults ended, and all others, how many writes it had, and at which points
    workers were killed."""

    ending: Ending
    writes: int
    killed: list[tuple[CrashPoint, ...]] = field(default_factory=list[tuple[CrashPoint, ...]])
    seconds: float = 0.0
    """How long all of it took."""


class SweepFailed(StepwellError, AssertionError):
    """A job that was interrupted came out differently. `differences` says at which points, and how."""

    def __init__(self, task: str, tried: int, differences: Sequence[str]) -> None:
        listed = "\n".join(differences)
        where = f"came out differently at {len(differences)} of {tried} crash points" if tried else "does not end"
        super().__init__(f"{task!r} {where}:\n{listed}")
        self.differences = list(differences)


class CrashSweep:
    """Sweeps over jobs of one app, with worker processes that import it as `program`, such as "shop.jobs:app".

    For a database of tests: it stops the clock, skips over waits, and expects that no other worker runs. `crash_sweep`
    is the same for a single job.
    """

    def __init__(self, app: App, *, program: str | None = None) -> None:
        self._app = app
        self._program = _find(app) if program is None else program
        self._workers: Workers | None = None
        self._settings: dict[str, Any] = {}
        self._clock = Clock(app)
        self._stopped: StoppedClock | None = None
        self._opened_here = ExitStack()

    def __enter__(self) -> Self:
        refuse_in_event_loop("CrashSweep", "asyncio.to_thread(...) with it")
        with ExitStack() as stack:
            self._workers = stack.enter_context(closing(Workers(self._program)))
            self._stopped = stack.enter_context(self._clock)
            self._began = self._stopped.now()
            self._opened_here = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Run the call without faults; then once for each crash point, and compare.

        `sample` takes so many of the points, by chance, the same for the same `seed`; `twice` adds so many runs in
        which the worker that resumes is killed, too. `points` says which ones instead. Raises `SweepFailed` if anything
        differs. A crash costs the job an attempt, and a step that was not saved is run again: so the task must have
        attempts to spare, and `effects` should count what a plain step did as done, however often. `patience` is for so
        many seconds in which nothing is written, however long the whole takes.
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
            # Whether a claim is one is known when it has been answered.
            if when == "committed" or write not in claims
        ]
        dice = random.Random(seed)  # noqa: S311 None: another each time
        chosen = _choose(every, sample, twice, dice) if points is None else _listed(points)
        differences: list[str] = []
        for places in chosen:
            try:
                found, deaths = self._once(call, places, effects, answer, patience, _MANY_TIMES * (writes + 10))
            except _Stuck as stuck:
                differences.append(f"  {_said(places, workers)}:\n    {stuck}")
                self._clear(workers)
                break
            if deaths:
                sweep.killed.append(places[:deaths])
            if found != ending:
                differences.append(f"  {_said(places, workers)}:\n{_compare(ending, found)}")
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
        """Run the call, with the workers killed at these points. Returns how it ended, and how many died."""
        workers, clock = self._opened()
        workers.deaths.clear()
        clock.set(self._began)  # so that all runs have the same time
        workers.arm(places[0] if places else None)
        job = call.task.job_store.enqueue(call, None)
        deadline = time.monotonic() + patience
        deaths = written = 0
        while True:
            if time.monotonic() > deadline:
                # Not the time it takes as a whole: that is a matter of its length, and of what else the machine does.
                before, written = written, workers.writes()[0]
                if written == before:
                    raise _Stuck(f"nothing was written for {patience:g} s: {self._standing()}")
                if written > most_writes:
                    raise _Stuck(f"it has written {written} times and has not ended: {self._standing()}")
                deadline = time.monotonic() + patience
            if workers.pid is None:
                workers.start(self._app.dsn, **self._settings)
            workers.look(_LOOK_EVERY)
            if len(workers.deaths) > deaths:
                deaths = len(workers.deaths)
                workers.arm(places[deaths] if deaths < len(places) else None)
            if workers.dead:
                # What the dead hold may still be locked, by what they have sent.
                self._ask(_DECLARE_DEAD, workers.dead)
                self._ask(_RESCUE)
                if not self._ask(_REGISTERED, workers.dead)[0]:
                    workers.dead.clear()
                continue
            busy, left = self._ask(_BUSY)
            if busy or (left and ((answer is not None and answer(job)) or clock.skip())):
                continue
            found = self._ended(job, within=0.0 if left else 2.0)
            if found is None:
                raise _Stuck(f"nothing is left to run, and it has not ended: {self._standing()}")
            if deaths < len(places) and workers.writes()[0] >= places[deaths].write and workers.await_death():
                continue  # it was the last write
            state, result, error = found
            done = effects(job) if effects is not None else None
            return Ending(state, result, None if error is None else _ID.sub("(id)", error), done), deaths

    def _clear(self, workers: Workers) -> None:
        workers.kill()
        workers.dead.clear()
        self._ask(_CLEAR)

    def _ended(self, job: JobHandle[Any], within: float) -> Any:
        """How it ended. One that was just moved to another partition of history can be overlooked for a moment, by who
        waited for that."""
        deadline = time.monotonic() + within
        while (found := self._ask(_ENDED, str(job.id))) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        return found

    def _ask(self, text: Any, *params: Any) -> Any:
        return next(iter(self._app.database.fetch(Query(text, params, _columns))), None)

    def _standing(self) -> str:
        rows = self._app.database.fetch(Query(_STANDING, (), _columns))
        return ", ".join(f"{task} is {state}" for state, task in rows) or "no job is live"

    def _opened(self) -> tuple[Workers, StoppedClock]:
        if self._workers is None or self._stopped is None:
            raise ConfigError("a CrashSweep is used inside its block: with CrashSweep(app) as sweep: sweep.run(...)")
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
    """Run a call, such as `order.call(7)`; kill its worker's process at each of its writes, resume, and compare how the
    job ended, and its `effects`, with a run without faults. Raises `SweepFailed` if anything differs.

    `program` is where worker processes find the app, such as "shop.jobs:app"; by default it is looked for among the
    modules that are loaded. All else is as in `CrashSweep.run`.
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


def _said(places: Sequence[CrashPoint], workers: Workers) -> str:
    named = [f"{place} ({at})" for place, at in zip(places, workers.deaths, strict=False)]
    return ", then ".join(named) or f"{places[0]}, which was never come to"


def _compare(expected: Ending, found: Ending) -> str:
    lines: list[str] = []
    for what in ("state", "result", "error", "effects"):
        wanted, got = getattr(expected, what), getattr(found, what)
        if wanted != got:
            lines.append(f"    {what}: without a fault {wanted!r}\n    {' ' * len(what)}  but here      {got!r}")
    return "\n".join(lines)


def _columns(*columns: Any) -> tuple[Any, ...]:
    return columns


def _find(app: App) -> str:
    """Where an app stands, for others to import."""
    for name, module in sorted(sys.modules.items(), key=lambda item: item[0] != app.name):
        if name == "__main__":
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{name}:{attribute}"
    raise ConfigError(
        "crash_sweep cannot tell how worker processes find this app: it stands in no module that they could import; "
        'give program="module:app"'
    )
