"""How long to wait before a process that died is started again."""

from __future__ import annotations

import random

FIRST = 0.5
LONGEST = 30.0
WELL = 60.0


class Backoff:
    """Half a second, twice as long each time up to half a minute, and anew after a minute that went well. A little at
    random: what broke many processes at once should not meet all of them again at once."""

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, age: float) -> float:
        """The seconds to wait after one that lived for `age`."""
        if age >= WELL:
            self._next = FIRST
        delay = self._next
        self._next = min(delay * 2, LONGEST)
        return delay * random.uniform(0.8, 1.2)  # noqa: S311
