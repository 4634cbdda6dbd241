"""A group of failures, as people read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

FailureState = Literal["open", "resolved", "ignored"]


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """The failed attempts of a task that have the same type of error, raised in the same function."""

    id: UUID
    """The fingerprint: a digest of `task`, `type` and `frame`."""
    task: str
    type: str
    """The type of the error; "(other)": all failures of a task that has too many groups."""
    frame: str | None
    """The innermost function of your own code in the traceback, as "module:name"; None: there is none."""
    state: FailureState
    """A resolved group is opened again by its next failure; an ignored one is not."""
    count: int
    """How many attempts have failed."""
    first_at: datetime
    last_at: datetime
    state_at: datetime | None
    """When somebody last set the state; None: nobody has."""
    reopened: int
    """How often a failure has opened the group again."""
    reopened_at: datetime | None
    message: str
    """The message of one of the last failures."""
    job_id: UUID | None
    """The job of that failure."""
