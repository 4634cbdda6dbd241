"""Which of a pool's queues a claim asks, in which order and shares.

Each queue has a virtual time that advances with each job it gave, more slowly the higher its weight. The queue with the
earliest time goes first, so the shares follow the weights even with one free slot at a time. Only queues that may have
ready jobs have a time. A queue that gave nothing is forgotten, and starts at the earliest time of the others when it
comes back: it gains no credit for the time in which it was empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepwell.worker.claiming.balance import Balance
from stepwell.worker.claiming.patterns import Patterns

# A claim asks at most this many queues. Queues that had nothing make room for the next ones.
MOST_ASKED = 200


class QueueRotation:
    """The queues of a pool that may have ready jobs. With a strict balance a queue's time is its number in order."""

    def __init__(self, queues: Sequence[str], balance: Balance) -> None:
        self._weights = balance.weights
        self._order = Patterns((queue, number) for number, queue in enumerate(queues)) if balance.strict else None
        self._times: dict[str, float] = {}
        self._earliest = 0.0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def strict(self) -> bool:
        return self._order is not None

    def add(self, queues: Iterable[str]) -> None:
        for queue in queues:
            if queue not in self._times:
                self._times[queue] = self._start(queue)

    def next(self) -> list[str]:
        times = self._times
        if len(times) < 2:
            return list(times)
        if self._order is not None:
            return sorted(times, key=lambda queue: (times[queue], queue))[:MOST_ASKED]
        return sorted(times, key=times.__getitem__)[:MOST_ASKED]

    def shares(self, asked: Sequence[str]) -> list[float] | None:
        """How much each queue may give before the others give more; None: all the same."""
        if len(asked) < 2:
            return None
        if self._order is not None:
            return [1.0] + [0.0] * (len(asked) - 1)
        if self._weights is None:
            return None
        return [float(self._weight(queue)) for queue in asked]

    def gave(self, asked: Sequence[str], counts: Mapping[str, int], *, all_they_had: bool) -> list[str]:
        """Count the jobs that a claim returned. Returns the queues that have no more ready jobs in the asked range:
        those that returned none although a later one did."""
        if self._order is None:
            for queue, count in counts.items():
                self._times[queue] += count / self._weight(queue)
            if self._times:
                self._earliest = min(self._times.values())
        if all_they_had:
            return list(asked)
        last = max(number for number, queue in enumerate(asked) if queue in counts)
        return [queue for queue in asked[:last] if queue not in counts]

    def remove(self, queues: Iterable[str]) -> None:
        for queue in queues:
            del self._times[queue]
        if self._times and self._order is None:
            self._earliest = min(self._times.values())

    def _start(self, queue: str) -> float:
        return self._earliest if self._order is None else self._order.get(queue) or 0

    def _weight(self, queue: str) -> int:
        return (self._weights and self._weights.get(queue)) or 1
