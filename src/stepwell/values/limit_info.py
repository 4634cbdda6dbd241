"""A limit or rate by key, as people read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """A key with running or waiting jobs, or with a setting. A key may have a limit, a rate, or both."""

    key: str
    most: int | None
    """How many jobs with this key may run at once; None: it has no limit."""
    most_is_set: bool
    """Whether `most` was set at run time; False: it comes from the code."""
    held: int
    """How many jobs have a permit: they run, or are about to. Counted up to 10,000, like `waiting`."""
    rate: float | None
    """How many jobs with this key may start per second; None: it has no rate."""
    burst: int | None
    """How many of them may start at once after a pause."""
    rate_is_set: bool
    """Whether `rate` and `burst` were set at run time."""
    next_at: datetime | None
    """When the rate admits the next job; None: it has room, or nothing waits."""
    waiting: int
    """How many jobs wait in line for this key."""
    set_at: datetime | None
    """When the limit or rate was last set at run time; None: both come from the code."""
