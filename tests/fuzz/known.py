"""What the actors of a round share: ids, fences, workers and schedules, old and new, true and forged."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .dice import Dice

TASKS = ("plain", "failing", "steps", "family", "leaf", "listener", "paid", "chain", "machine", "undone", "restarting")
"""Tasks that the workers of a round know, and that anybody may steer."""
STRANGE_TASKS = ("nobody", "émile \U0001f40c", "a" * 200)
"""Tasks that only raw SQL claims."""
QUEUES = ("default", "default", "slow", "batch", "q" * 200)
EVENTS = ("paid", "shipped", "word")
EVENT_KEYS = ("", "1", "2")
STEP_KEYS = ("a", "b", "c", "leaf", "receive", "wait", "d~1")
CURSORS = ("fetch", "parse", "store", "Count", "Rest")
SCHEDULES = ("nightly", "often", "s" * 200)
GROUPS = tuple(f"00000000-0000-4000-8000-0000000000{n:02}" for n in range(50))
OWNERS = ("fuzz", "other")
WITNESS_QUEUE = "witness"
"""Of these jobs nobody but the workers has the ids: each must succeed, once."""


@dataclass(frozen=True)
class Fence:
    """A claim that somebody made."""

    job_id: str
    epoch: int
    worker_id: str


@dataclass(frozen=True)
class Due:
    """A schedule as somebody saw it."""

    id: str
    version: int
    due_at: str


@dataclass
class Known:
    """Safe for threads: each list only grows at one end and forgets at the other."""

    jobs: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    fences: deque[Fence] = field(default_factory=lambda: deque(maxlen=200))
    groups: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    workers: deque[str] = field(default_factory=lambda: deque(maxlen=12))
    real_workers: deque[str] = field(default_factory=lambda: deque(maxlen=6))
    dues: deque[Due] = field(default_factory=lambda: deque(maxlen=30))
    killed: set[int] = field(default_factory=set[int])
    """Backends that the round has ended: what their clients meet is no finding."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pick(self, dice: Dice, what: deque[Any]) -> Any:
        """One of them, the newest more often than the old; None: there is none yet."""
        with self.lock:
            if not what:
                return None
            return what[-1 - int(len(what) * dice.random() ** 2)]

    def job(self, dice: Dice) -> str:
        """A job's id, most of them real."""
        found = self.pick(dice, self.jobs)
        return found if found is not None and not dice.chance(0.03) else forged(dice)

    def fence(self, dice: Dice) -> Fence:
        """A claim: most are right, many are stale, some never were."""
        found = self.pick(dice, self.fences)
        if found is None or dice.chance(0.03):
            return Fence(self.job(dice), dice.randrange(-1, 4), forged(dice))
        if dice.chance(0.05):
            return Fence(found.job_id, found.epoch + dice.one((-1, 1, 2)), found.worker_id)
        return found

    def worker(self, dice: Dice) -> str:
        """A worker that raw SQL has registered, seldom a real one."""
        found = self.pick(dice, self.real_workers if dice.chance(0.02) else self.workers)
        return found if found is not None and not dice.chance(0.03) else forged(dice)

    def due(self, dice: Dice) -> Due:
        found = self.pick(dice, self.dues)
        return found if found is not None and not dice.chance(0.03) else Due(forged(dice), 1, "2020-01-01 00:00+00")

    def add(self, what: deque[Any], *items: Any) -> None:
        with self.lock:
            what.extend(items)


def forged(dice: Dice) -> str:
    """An id that nothing has."""
    return f"{dice.getrandbits(128):032x}"
