"""What a check found, and the phrases that findings share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "problem"]

_LISTED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its status, and a sentence with the next act. `details` are the rows behind it."""

    status: Status
    text: str
    details: Sequence[Any] = ()
    check: str = ""
    """The name of the check, set by `examine`."""


NOT_CHECKED = Finding("warning", 'not checked: the stepwell schema is missing or incomplete: see the check "schema"')


def listed(parts: Sequence[str]) -> str:
    """The first few parts, and how many more there are."""
    more = len(parts) - _LISTED
    return "; ".join(parts[:_LISTED]) + (f"; and {more} more" if more > 0 else "")
