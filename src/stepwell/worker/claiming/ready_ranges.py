"""Where in each queue jobs may be ready.

A claim starts there and not at the front of the queue. In front of it there may be any number of dead rows: jobs that
were claimed long ago and cannot be vacuumed while a transaction holds an old snapshot.
"""

from __future__ import annotations

from typing import NamedTuple

from stepwell.postgres.queries.claims import Position

LAST_RANK = 32767
# A queue with more ranges than this is walked from the first of them to its end.
_MOST_RANGES = 16


class ReadyRange(NamedTuple):
    """The jobs after a position, up to the end of a rank."""

    after: Position
    last_rank: int

    def covers(self, other: ReadyRange) -> bool:
        return self.after <= other.after and self.last_rank >= other.last_rank


class ReadyRanges:
    """The ranges of a pool's queues. A queue without one has nothing ready."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[ReadyRange]] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._ranges

    def __len__(self) -> int:
        """How many queues have one."""
        return len(self._ranges)

    def merge(self, others: ReadyRanges) -> list[str]:
        """Take over the ranges of others, which have none after this. Returns their queues."""
        queues = list(others._ranges)
        for queue in queues:
            for ready in others._ranges.pop(queue):
                self.add(queue, ready)
        return queues

    def add(self, queue: str, ready: ReadyRange) -> None:
        ranges = self._ranges.setdefault(queue, [])
        if any(other.covers(ready) for other in ranges):
            return
        ranges[:] = sorted([*(other for other in ranges if not ready.covers(other)), ready])
        if len(ranges) > _MOST_RANGES:
            ranges[:] = [ReadyRange(ranges[0].after, LAST_RANK)]

    def first(self, queue: str) -> ReadyRange:
        return self._ranges[queue][0]

    def advance(self, queue: str, position: Position) -> None:
        """Every job up to this position of the first range has been claimed."""
        self._ranges[queue][0] = ReadyRange(position, self._ranges[queue][0].last_rank)

    def end(self, queue: str) -> None:
        """Every job in the first range has been claimed."""
        ranges = self._ranges[queue]
        del ranges[0]
        if not ranges:
            del self._ranges[queue]
