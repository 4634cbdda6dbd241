"""Limits at which a worker process ends, so that its supervisor replaces it. Each process measures itself."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.supervisor import MemoryLimitReached, MemoryLimitTooLow, RunLimitReached
from stepwell.worker.worker import Worker

_CHECK_EVERY = 0.1
_CHECKS_PER_SECOND = 10


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """How many runs a process may end, and how many bytes of memory it may use; None: no limit."""

    jobs: int | None = None
    memory: int | None = None

    def __bool__(self) -> bool:
        return self.jobs is not None or self.memory is not None


class LimitWatch:
    """Drains a worker once it reaches a limit; `reached` says that it did."""

    def __init__(self, worker: Worker, limits: ProcessLimits, events: EventBus) -> None:
        self._worker = worker
        self._events = events
        self._limits = limits
        self._warned = False
        self.reached = False

    async def run(self) -> None:
        """Return once a limit is reached or the worker is stopping anyway."""
        checks = 0
        while self._limits and not self._worker.stopping:
            if self._enough_jobs() or (checks % _CHECKS_PER_SECOND == 0 and self._too_much_memory()):
                self.reached = True
                self._worker.stop()
                return
            checks += 1
            await asyncio.sleep(_CHECK_EVERY)

    def _enough_jobs(self) -> bool:
        most, ended = self._limits.jobs, self._worker.runs_ended
        if most is None or ended < most:
            return False
        self._events.emit(RunLimitReached(ended, most))
        return True

    def _too_much_memory(self) -> bool:
        most = self._limits.memory
        if most is None or (held := resident_memory()) <= most:
            return False
        if self._worker.runs_ended:
            self._events.emit(MemoryLimitReached(held, most))
            return True
        # The app alone is this large, and so would its replacement be: replacing it would never end.
        if not self._warned:
            self._warned = True
            self._events.emit(MemoryLimitTooLow(held, most))
        return False


def resident_memory() -> int:
    """The resident memory of this process in bytes; without /proc, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        # In bytes on macOS, in kilobytes elsewhere.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")
