"""A system on a database of its own: fill it, drain it, ping it, and watch from outside."""

from __future__ import annotations

import contextlib
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
_WARM_UP = 5


@dataclass(frozen=True)
class Drained:
    """How a drain went. `counts` are (seconds since the first handler, handlers so far)."""

    jobs: int
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
    def first_second(self) -> float:
        return self.rate_between(0, 1)

    @property
    def last_second(self) -> float:
        """The second before the last job, not after it."""
        most = self.counts[-1][1]
        end = next(at for at, count in self.counts if count == most)
        return self.rate_between(end - 1, end)


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

    @contextmanager
    def workers(self, concurrency: int, processes: int = 1) -> Generator[list[subprocess.Popen[str]]]:
        """So many worker processes, counted from zero; stopped at the end."""
        self.ran = Reading.new(self._tally)
        started = [self.start("work", concurrency) for _ in range(processes)]
        try:
            yield started
            for worker in started:
                if worker.poll() is not None:
                    raise RuntimeError(f"{self.system.name}: a worker ended with {worker.returncode}")
        finally:
            stop(started)

    def drain(
        self, jobs: int, concurrency: int, processes: int = 1, patience: float = 300, at_most: float | None = None
    ) -> Drained:
        """Start workers on a queue that holds so many jobs, and wait until it is empty, or for `at_most` seconds.

        The clock runs from the moment when every process has run a job, so that none is paid for starting late, to the
        moment when the system itself has no job left unfinished.
        """
        with self.workers(concurrency, processes):
            watch = self.start("watch", jobs, output=subprocess.PIPE)
            try:
                counts = list(self._counts(watch, jobs, processes, patience, at_most))
                end = float(watch.communicate()[0]) if watch.poll() == 0 else counts[-1][0]
            finally:
                watch.kill()
        begin, done = self.ran.all_at_work, counts[-1][1]
        before = 0 if self.ran.processes == 1 else max((n for at, n in counts if at <= begin), default=0)
        return Drained(done - before, end - begin, [(at - self.ran.first, count) for at, count in counts if count])

    def _counts(
        self, watch: subprocess.Popen[str], jobs: int, processes: int, patience: float, at_most: float | None
    ) -> Iterator[tuple[float, int]]:
        began = time.monotonic()
        all_at_work: float | None = None
        while True:
            ended = watch.poll()
            if ended:
                raise RuntimeError(f"{self.system.name}: watch ended with {ended}")
            now, count = time.monotonic(), self.ran.count
            yield now, count
            if all_at_work is None and self.ran.processes >= processes:
                all_at_work = now
            if ended is not None or (at_most and all_at_work and now > all_at_work + at_most):
                return
            if now > began + patience:
                raise TimeoutError(f"{self.system.name}: {count} of {jobs} jobs ran in {patience:.0f} s")
            time.sleep(_SAMPLE)

    def ping(self, jobs: int, concurrency: int = 10) -> list[float]:
        """Seconds from enqueue call to handler, with an idle worker."""
        with self.workers(concurrency):
            # The first of them wait for the worker to start and for connections to open.
            self.run("ping", jobs + _WARM_UP)
            return self.ran.latencies[_WARM_UP:]


def stop(processes: list[subprocess.Popen[str]]) -> None:
    """Ask them to end, and end them."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        process.kill()
        process.wait()
