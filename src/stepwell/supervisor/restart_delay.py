"""How long a supervisor waits before it replaces a process that died."""

from __future__ import annotations

import random

FIRST = 0.5
LONGEST = 30.0
WELL = 60.0


class RestartDelay:
    """Half a second, doubled after each crash up to 30 s, and reset once a process has lived for a minute.

    Jitter keeps processes that crashed together from all starting together.
    """

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, age: float) -> float:
        """The seconds to wait after a process that lived for `age` seconds."""
        if age >= WELL:
            self._next = FIRST
        delay = self._next
        self._next = min(delay * 2, LONGEST)
        return delay * random.uniform(0.8, 1.2)  # noqa: S311
