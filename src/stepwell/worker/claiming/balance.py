"""The shares in which the queues of a pool get its slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_whole
from stepwell.worker.claiming.patterns import Patterns, check_pattern, overlap
from stepwell.worker.claiming.pools import Pools

BalanceOption = Literal["round_robin", "strict"] | Mapping[str, int]


class Balance:
    """The balance that `Worker(balance=...)` asks for: queues take turns, go in strict order, or by weight. Each queue
    that matches a pattern has the pattern's weight; a queue without a weight has 1."""

    def __init__(self, given: BalanceOption) -> None:
        self.strict = given == "strict"
        self.weights: Patterns[int] | None = None
        self._weighed: list[str] = []
        if isinstance(given, Mapping):
            self._weighed = [check_pattern(queue) for queue in given]
            weights = {queue: check_whole(n, f"balance[{queue!r}]", 1, 1_000_000) for queue, n in given.items()}
            self.weights = Patterns(weights)
        elif given not in ("round_robin", "strict"):
            raise ConfigError(
                f"balance is {given!r}: it must be 'round_robin', 'strict', or a dict of weights such as {{'mail': 3}}"
            )

    def check(self, pools: Pools) -> None:
        """Refuse weights for queues that this worker does not claim from, and a balance where no slots are shared."""
        queues = pools.queues
        if (self.strict or self.weights) and not pools.shared and not any(pool.patterns for pool in pools.all):
            raise ConfigError(
                f"balance is for queues that share slots, and here each of {', '.join(queues)} has its own: leave it "
                "out"
            )
        strangers = [name for name in self._weighed if not any(overlap(name, queue) for queue in queues)]
        if strangers:
            raise ConfigError(
                f"balance gives a weight to {', '.join(map(repr, strangers))}, from which this worker does not claim: "
                f"its queues are {', '.join(queues)}"
            )
