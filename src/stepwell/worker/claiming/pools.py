"""A worker's slots: one pool for all its queues, or a pool for each of them.

A pool is both a guarantee and a limit: its slots are kept free for jobs of its queues, and those jobs run in no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_whole
from stepwell.worker.claiming.patterns import Patterns, check_pattern, is_pattern

DEFAULT_SLOTS = 10
MOST_SLOTS = 100_000


@dataclass(frozen=True, slots=True)
class Pool:
    """Slots, and the queues and patterns whose jobs run in them."""

    queues: tuple[str, ...]
    slots: int

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(queue for queue in self.queues if is_pattern(queue))


class Pools:
    """All slots of a worker. `shared`: all its queues share one pool."""

    def __init__(self, pools: Iterable[Pool], *, shared: bool) -> None:
        self.all = tuple(pools)
        self.shared = shared
        self.queues = [queue for pool in self.all for queue in pool.queues]
        self.slots = sum(pool.slots for pool in self.all)
        self._numbers = Patterns((queue, number) for number, pool in enumerate(self.all) for queue in pool.queues)

    def pool_of(self, queue: str) -> int | None:
        """The number of the pool that runs this queue's jobs; None: this worker does not run them."""
        return self._numbers.get(queue)


def read_pools(queues: Iterable[str] | Mapping[str, int], concurrency: int | None) -> Pools:
    """The pools that `Worker(queues=..., concurrency=...)` asks for: names that share slots, or each with its own."""
    if isinstance(queues, str):
        raise ConfigError(f"queues is the text {queues!r}: give a list, such as [{queues!r}]")
    if not isinstance(queues, Iterable):
        raise ConfigError(f"queues is {queues!r}: give a list of names, or a dict of names and slots")
    if isinstance(queues, Mapping):
        slots = cast("Mapping[str, int]", queues)
        if concurrency is not None:
            raise ConfigError(
                f"concurrency is {concurrency!r} and queues says how many slots each queue has: leave concurrency out, "
                "it is their sum"
            )
        for queue, count in slots.items():
            check_whole(count, f"queues[{check_pattern(queue)!r}]", 1, MOST_SLOTS)
        pools = Pools([Pool((queue,), count) for queue, count in slots.items()], shared=False)
    else:
        names = tuple(dict.fromkeys(check_pattern(queue) for queue in queues))
        pools = Pools([Pool(names, check_concurrency(concurrency))] if names else [], shared=True)
    if not pools.all:
        raise ConfigError("queues is empty: name at least one, or leave it out to claim from the queues of all tasks")
    return pools


def check_concurrency(concurrency: int | None) -> int:
    return DEFAULT_SLOTS if concurrency is None else check_whole(concurrency, "concurrency", 1, MOST_SLOTS)
