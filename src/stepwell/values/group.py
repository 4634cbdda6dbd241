"""A group of jobs as values: how far it is, how it ended, and how its members ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A member of a group that failed. `error` is the type and the message of its last attempt, cut at 500 characters.
    It is empty if the error was not stored."""

    id: UUID
    error: str


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """How a group ended: the counts of its members, and the first ten that failed, in the order in which they were
    counted. The counts do not change any more, even if a member is retried.

    The callback of a group gets it as its first argument. `app.get_group(summary.id)` finds the group, with all
    results.
    """

    id: UUID
    total: int
    succeeded: int
    failed: int
    cancelled: int
    failures: tuple[GroupFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How many members of a group have ended so far. A member that is retried before the group has ended is not counted
    until it ends again."""

    total: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def done(self) -> int:
        """How many have ended, in whichever way."""
        return self.succeeded + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class GroupResult:
    """How one member of a group ended. `result` is plain JSON values."""

    id: UUID
    state: Literal["succeeded", "failed", "cancelled"]
    task: str
    result: Any
    error: str | None
