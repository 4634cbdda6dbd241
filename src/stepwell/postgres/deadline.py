"""The moment by which a call must have ended."""

from __future__ import annotations

import time

# The time for the statement of a call that got its connection only at the last moment.
_LEAST = 1.0


class Deadline:
    """A deadline in `limit` seconds; None: there is none."""

    __slots__ = ("_at", "limit")
    _at: float | None

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.restart()

    def restart(self) -> None:
        """Start counting again: the time until now was not part of the call."""
        self._at = None if self.limit is None else time.monotonic() + self.limit

    @property
    def left(self) -> float | None:
        return None if self._at is None else max(self._at - time.monotonic(), 0.0)

    @property
    def patience(self) -> float | None:
        """How long a statement that is sent now may go unanswered. Never so short that every answer would be late."""
        return None if self.limit is None else max(self.left or 0.0, min(_LEAST, self.limit))

    @property
    def is_over(self) -> bool:
        return self.left == 0.0
