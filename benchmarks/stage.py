"""A system on a database of its own: fill it, drain it, ping it, and watch from outside."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks.kit.tally import Reading
from benchmarks.system import System

_SAMPLE = 0.02
_STOP_SECONDS = 20
WARM_UP = 5
_PATIENCE = 300


@dataclass(frozen=True)
class Drained:
    """How a drain went. `counts` are (seconds since the first handler, handlers so far)."""

    jobs: float
    seconds: float
    counts: list[tuple[float, int]] = field(repr=False)

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    def rate_between(self, begin: float, end: float) -> float:
        """Jobs per second between two moments after the first handler."""
        inside = [(at, count) for at, count in self.counts if begin <= at <= end]
        if len(inside) < 2:
            return 0.0
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)

    @property
    def best_second(self) -> float:
        return max(self.rate_between(tenth / 10, tenth / 10 + 1) for tenth in range(max(1, int(self._end * 10) - 9)))

    @property
    def last_second(self) -> float:
        return self.rate_between(self._end - 1, self._end)

    @property
    def _end(self) -> float:
        """When the last handler ran: what was counted after that is the same."""
        most = self.counts[-1][1]
        return next(at for at, count in self.counts if count == most)

    def over_time(self, step: float = 0.5) -> list[tuple[float, float]]:
        """The rate in each half second, by its middle."""
        return [((n + 0.5) * step, self.rate_between(n * step, (n + 1) * step)) for n in range(int(self._end / step))]


class Stage:
    """Where one system plays. `environment` is what its program is told."""

    def __init__(self, system: System, dsn: str, place: Path, environment: dict[str, str]) -> None:
        self.system = system
        self.dsn = dsn
        self._tally = place / "tally"
        self._environment = {**environment, "BENCH_DSN": dsn, "BENCH_TALLY": str(self._tally)}
        self.ran = Reading.new(self._tally)
        self.run("install")

    def run(self, *command: object) -> str:
        """Run a command of the system's program to its end."""
        return self.system.run(self._environment, *command)

    def fill(self, jobs: int) -> None:
        """Enqueue so many no-ops, and give the planner what autovacuum would have given it in the meantime."""
        self.run("fill", jobs)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("analyze")

    def start(self, *command: object, output: int | None = None) -> subprocess.Popen[str]:
        return self.system.start(self._environment, *command, output=output)

    def start_script(self, script: str, *command: object) -> subprocess.Popen[str]:
        """Start another script of the system's folder."""
        return self.system.start(self._environment, *command, script=script)

    def run_script(self, script: str, *command: object) -> str:
        """Run another script of the system's folder to its end."""
        return self.system.run(self._environment, *command, script=script)

    def wait_until_done(self, jobs: int) -> None:
        """Wait until so many handlers have begun, and the system has no job unfinished."""
        self.run("watch", jobs)

    def wait_for(self, jobs: int) -> None:
        """Wait until so many handlers have begun."""
        deadline = time.monotonic() + _PATIENCE
        while self.ran.count < jobs:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.system.name}: {self.ran.count} of {jobs} jobs ran in {_PATIENCE} s")
            time.sleep(0.02)

    @contextmanager
    def workers(self, concurrency: int, processes: int = 1) -> Generator[list[subprocess.Popen[str]]]:
        """So many worker processes, stopped at the end."""
        started: list[subprocess.Popen[str]] = []
        try:
            for _ in range(processes):
                started.append(self.start("work", concurrency))  # noqa: PERF401  # each must be known to be stopped
            yield started
            _check_alive(self.system, started)
        finally:
            stop(started)

    def drain(
        self, jobs: int, concurrency: int, processes: int = 1, patience: float = 300, at_most: float | None = None
    ) -> Drained:
        """Start workers on a queue that holds so many jobs, and wait until it is empty, or for `at_most` seconds.

        The clock runs from the moment when every process has begun a job, so that none is paid for starting late, to
        the moment when the system itself has no job left unfinished.
        """
        self.ran = Reading.new(self._tally)
        watch = self.start("watch", jobs, output=subprocess.PIPE)
        try:
            assert watch.stdout is not None
            if watch.stdout.readline() != "ready\n":
                raise RuntimeError(f"{self.system.name}: watch ended with {watch.wait()}")
            with self.workers(concurrency, processes) as workers:
                counts = list(self._counts(watch, workers, jobs, patience, at_most))
                end = float(watch.communicate()[0]) if watch.poll() == 0 else counts[-1][0]
        finally:
            stop([watch])
        begin = self.ran.all_at_work
        before = 0.0 if self.ran.processes == 1 else _count_at(begin, counts)
        return Drained(
            counts[-1][1] - before, end - begin, [(at - self.ran.first, count) for at, count in counts if count]
        )

    def _counts(
        self,
        watch: subprocess.Popen[str],
        workers: list[subprocess.Popen[str]],
        jobs: int,
        patience: float,
        at_most: float | None,
    ) -> Iterator[tuple[float, int]]:
        began = time.monotonic()
        all_at_work: float | None = None
        while True:
            ended = watch.poll()
            if ended:
                raise RuntimeError(f"{self.system.name}: watch ended with {ended}")
            _check_alive(self.system, workers)
            now, count = time.monotonic(), self.ran.count
            yield now, count
            if all_at_work is None and self.ran.processes >= len(workers):
                all_at_work = now
            if ended is not None or (at_most and all_at_work and now > all_at_work + at_most):
                return
            if now > began + patience:
                raise TimeoutError(f"{self.system.name}: {count} of {jobs} jobs ran in {patience:.0f} s")
            time.sleep(_SAMPLE)

    def ping(self, jobs: int, concurrency: int = 10) -> list[float]:
        """Seconds from enqueue call to handler, with an idle worker."""
        self.ran = Reading.new(self._tally)
        with self.workers(concurrency):
            # The first of them wait for the worker to start and for connections to open.
            self.run("ping", jobs + WARM_UP)
            return self.ran.latencies[WARM_UP:]


def stop(processes: list[subprocess.Popen[str]]) -> None:
    """Ask them to end, and end them, with all that they have started."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _check_alive(system: System, workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        if worker.poll() is not None:
            raise RuntimeError(f"{system.name}: a worker ended with {worker.returncode}")


def _count_at(moment: float, counts: list[tuple[float, int]]) -> float:
    """How many handlers had run by then: between two looks, as if they had come evenly."""
    for (before, fewer), (after, more) in itertools.pairwise(counts):
        if before <= moment <= after:
            return fewer + (more - fewer) * (moment - before) / (after - before)
    return 0.0
