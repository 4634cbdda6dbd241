"""Limits at which a worker process ends, to be replaced by a fresh one. It looks by itself, at what only it can see."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from stepwell.telemetry.bus import log
from stepwell.telemetry.supervisor import MemoryLimitReached, MemoryLimitTooLow, RunLimitReached
from stepwell.worker import Worker

_LOOK = 0.1
_LOOKS_PER_SECOND = 10


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs a process may end, and how many bytes it may hold; None for as many as it likes."""

    jobs: int | None = None
    memory: int | None = None

    def __bool__(self) -> bool:
        return self.jobs is not None or self.memory is not None


class Recycling:
    """Watches a worker from inside, and stops it in order once a limit is reached; `due` says that it did."""

    def __init__(self, worker: Worker, limits: Limits) -> None:
        self._worker = worker
        self._limits = limits
        self._warned = False
        self.due = False

    async def watch(self) -> None:
        """Return when there is nothing more to watch: a limit is reached, or somebody else has stopped the worker."""
        looks = 0
        while self._limits and not self._worker.stopping:
            if self._enough_jobs() or (looks % _LOOKS_PER_SECOND == 0 and self._too_much_memory()):
                self.due = True
                self._worker.stop()
                return
            looks += 1
            await asyncio.sleep(_LOOK)

    def _enough_jobs(self) -> bool:
        most, ended = self._limits.jobs, self._worker.runs_ended
        if most is None or ended < most:
            return False
        log(RunLimitReached(ended, most))
        return True

    def _too_much_memory(self) -> bool:
        most = self._limits.memory
        if most is None or (held := resident_memory()) <= most:
            return False
        if self._worker.runs_ended:
            log(MemoryLimitReached(held, most))
            return True
        # It came to be so large without any job's help, and so will the next: to replace it now would go on for ever.
        if not self._warned:
            self._warned = True
            log(MemoryLimitTooLow(held, most))
        return False


def resident_memory() -> int:
    """The bytes of memory that this process holds; where the system does not tell, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        # In bytes on macOS, in kilobytes on the others.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")
