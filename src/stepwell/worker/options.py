"""The options of a worker, checked and in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.values.bounds import check_whole
from stepwell.values.duration import describe
from stepwell.worker.claiming.balance import Balance
from stepwell.worker.claiming.pools import Pools, read_pools


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """As `Worker` documents them."""

    pools: Pools | None
    """None: the queues of the app's tasks, which share all slots."""
    concurrency: int
    balance: Balance
    process_slots: int
    grace: float
    lease: float
    renew: float
    poll: float
    blocked_after: float
    max_held_size: int
    always_replay: bool
    wait: bool
    batches_wait: bool
    """Whether batches that are not full wait for more jobs: not where all jobs are there already."""

    def __post_init__(self) -> None:
        check_whole(self.max_held_size, "max_held_size", 1)
        check_whole(self.process_slots, "process_slots", 1, 1000)
        if self.pools is not None:
            self.balance.check(self.pools)
        if not 0 < self.renew <= self.lease / 3:
            raise ConfigError(
                f"renew is {describe(self.renew)} and lease {describe(self.lease)}: a lease must be at least three "
                "times the renewal"
            )
        if self.poll <= 0:
            raise ConfigError("poll is 0: it must be more")

    def pools_for(self, app: App) -> Pools:
        if self.pools is not None:
            return self.pools
        queues = sorted({queue for task in app.tasks.values() for queue in task.queues} | {app.queue})
        for queue in queues:
            if "*" in queue:
                raise ConfigError(f"a task's queue is {queue!r}, and a worker reads * as a pattern: pass queues=")
        pools = read_pools(queues, self.concurrency)
        self.balance.check(pools)
        return pools
