"""What a handler has reported by `ctx.progress`, for people: which share is done, and the same in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from stepwell.web.wording import compact_number

# Numbers of any size can be reported. A longer one says nothing to a reader.
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class Progress:
    share: float | None
    """How much of the total is done, from 0 to 1; None: it is not known."""
    amount: str
    """Such as "3 of 10" or "3 done"; empty: it is not known."""
    message: str

    @property
    def text(self) -> str:
        return ", ".join(part for part in (self.amount, self.message) if part)


def read_progress(said: Any) -> Progress | None:
    """Read the decoded value; None: something else than `ctx.progress` has written it."""
    if not isinstance(said, dict):
        return None
    done, total, message = (said.get(name) for name in ("done", "total", "message"))  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return Progress(_share(done, total), _amount(done, total), message if isinstance(message, str) else "")


def _share(done: Any, total: Any) -> float | None:
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return None
    if done <= 0:
        return 0.0
    try:
        share = done / total
    except OverflowError:  # the handler may report integers of any size
        return None
    return min(share, 1.0) if math.isfinite(share) else None


def _amount(done: Any, total: Any) -> str:
    if not isinstance(done, int | float):
        return ""
    if not abs(done) < _MOST:
        return "much is done"
    if isinstance(total, int | float) and 0 < total < _MOST:
        return f"{compact_number(done)} of {compact_number(total)}"
    return f"{compact_number(done)} done"
