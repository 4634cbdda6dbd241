"""The options of a worker, checked and in seconds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.values.duration import Duration, seconds
from stepwell.worker.claiming.balance import Balance, BalanceOption
from stepwell.worker.claiming.pools import Pools, check_concurrency, read_pools

_ALWAYS_REPLAY = "STEPWELL_ALWAYS_REPLAY"


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

    def pools_for(self, app: App) -> Pools:
        """The pools that the options name, else one for all queues that the app's tasks name."""
        if self.pools is not None:
            return self.pools
        queues = sorted({queue for task in app.tasks.values() for queue in task.queues} | {app.queue})
        for queue in queues:
            if "*" in queue:
                raise ConfigError(f"a task's queue is {queue!r}, and a worker reads * as a pattern: pass queues=")
        pools = read_pools(queues, self.concurrency)
        self.balance.check(pools)
        return pools


def read_options(
    *,
    queues: Iterable[str] | Mapping[str, int] | None,
    concurrency: int | None,
    balance: BalanceOption,
    process_slots: int | None,
    grace: Duration,
    lease: Duration,
    renew: Duration,
    poll: Duration,
    blocked_after: Duration,
    max_held_size: int,
    always_replay: bool | None,
    wait: bool,
) -> WorkerOptions:
    """Check what `Worker` was given. Raises `ConfigError`."""
    if isinstance(max_held_size, bool) or not isinstance(max_held_size, int) or max_held_size < 1:
        raise ConfigError(f"max_held_size is {max_held_size!r}: it must be a number of bytes, 1 or more")
    if process_slots is not None and (
        isinstance(process_slots, bool) or not isinstance(process_slots, int) or not 1 <= process_slots <= 1000
    ):
        raise ConfigError(f"process_slots is {process_slots!r}: it must be a whole number between 1 and 1000")
    pools = None if queues is None else read_pools(queues, concurrency)
    slots = pools.slots if pools else check_concurrency(concurrency)
    options = WorkerOptions(
        pools=pools,
        concurrency=slots,
        balance=Balance(balance),
        process_slots=process_slots or min(slots, os.cpu_count() or 1),
        grace=seconds(grace, "grace"),
        lease=seconds(lease, "lease"),
        renew=seconds(renew, "renew"),
        poll=seconds(poll, "poll"),
        blocked_after=seconds(blocked_after, "blocked_after"),
        max_held_size=max_held_size,
        always_replay=os.environ.get(_ALWAYS_REPLAY) == "1" if always_replay is None else always_replay,
        wait=wait,
    )
    if pools is not None:
        options.balance.check(pools)
    if not 0 < options.renew <= options.lease / 3:
        raise ConfigError(f"renew is {renew!r} and lease {lease!r}: a lease must be at least three times the renewal")
    if options.poll <= 0:
        raise ConfigError("poll is 0: it must be more")
    return options
