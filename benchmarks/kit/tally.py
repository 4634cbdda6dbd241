"""What the handlers of every measured system do, and all that they do: count in shared memory.

It stands alone, on the standard library, because each system imports it in its own virtual environment.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from array import array
from pathlib import Path

_SLOTS = 1024
_SLOT = struct.Struct("=qq")  # count, and the first by the monotonic clock, which all processes share


class Tally:
    """One slot for each process, so that nobody waits for a lock of somebody else."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b")
        self._slots = mmap.mmap(self._file.fileno(), _SLOTS * _SLOT.size)
        self._samples = os.open(_samples(path), os.O_WRONLY | os.O_APPEND)
        self._lock = threading.Lock()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def hit(self, jobs: int = 1) -> None:
        """A handler ran, for so many jobs."""
        with self._lock:
            if not self._count:
                self._offset, self._first = self._take_slot(), time.monotonic_ns()
            self._count += jobs
            _SLOT.pack_into(self._slots, self._offset, self._count, self._first)

    def hit_after(self, sent: int) -> None:
        """A handler ran, for a job whose enqueue call began at `sent`, in nanoseconds of the monotonic clock."""
        os.write(self._samples, struct.pack("=q", time.monotonic_ns() - sent))
        self.hit()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._count = self._first = self._offset = 0

    def _take_slot(self) -> int:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            for offset in range(0, _SLOTS * _SLOT.size, _SLOT.size):
                if _SLOT.unpack_from(self._slots, offset)[0] == 0:
                    _SLOT.pack_into(self._slots, offset, 1, time.monotonic_ns())
                    return offset
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        raise RuntimeError(f"more than {_SLOTS} processes ran jobs")


class Reading:
    """The other side: what all processes have counted so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._slots = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @classmethod
    def new(cls, path: Path) -> Reading:
        """Begin at zero, for processes that start after this."""
        path.write_bytes(bytes(_SLOTS * _SLOT.size))
        _samples(path).write_bytes(b"")
        return cls(path)

    @property
    def count(self) -> int:
        return sum(count for count, _ in self._taken())

    @property
    def first(self) -> float:
        """When the first handler ran, in seconds of the monotonic clock."""
        return min(first for _, first in self._taken()) / 1e9

    @property
    def all_at_work(self) -> float:
        """When the last of the processes ran its first handler."""
        return max(first for _, first in self._taken()) / 1e9

    @property
    def processes(self) -> int:
        """How many processes ran handlers."""
        return len(self._taken())

    @property
    def latencies(self) -> list[float]:
        """Seconds from enqueue call to handler, in the order in which the handlers ran."""
        samples = array("q")
        samples.frombytes(_samples(self._path).read_bytes())
        return [sample / 1e9 for sample in samples]

    @property
    def answers(self) -> int:
        """How many of those latencies there are."""
        return _samples(self._path).stat().st_size // 8

    def _taken(self) -> list[tuple[int, int]]:
        taken: list[tuple[int, int]] = []
        for slot in _SLOT.iter_unpack(self._slots[:]):
            if not slot[0]:
                break
            taken.append(slot)
        return taken


def _samples(path: Path) -> Path:
    return path.with_suffix(".samples")
