"""A step as a value: as it is saved, as it comes with the claim, and as people look it up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

StepKind = Literal[
    "step", "transaction", "retry", "sleep", "wait", "receive", "child", "first", "now", "random", "uuid", "patch",
    "state", "undo",
]  # fmt: skip


# Over so many bytes a value is stored apart, and does not come with the claim.
LARGE = 65536


# No text of so few characters is as large as that.
SHORT = LARGE // 4


def is_large(value: str) -> bool:
    """Whether a value, as JSON, is stored apart."""
    return len(value) > SHORT and len(value.encode()) > LARGE


class SavedError(msgspec.Struct, frozen=True, gc=False):
    """How a step failed. Of a child `state` says whether it failed or was cancelled. One that is `final` has been tried
    as often as its own policy allows."""

    type: str | None
    message: str | None
    state: str | None = None
    final: bool = False


class SavedStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step as it comes with the claim, in the order of columns of stepwell.journal."""

    key: str
    n: int
    kind: str
    pending: bool
    timed_out: bool
    large: bool
    undo: bool
    fingerprint: int | None
    child_id: str | None
    error: SavedError | None
    value: msgspec.Raw

    @property
    def done(self) -> bool:
        """Whether it ended well, as stepwell.steps_done counts."""
        return not self.pending and self.error is None and self.kind != "retry"


class SavedJournal(msgspec.Struct, frozen=True):
    """What comes with the claim of a durable job."""

    cursor: str | None
    input: msgspec.Raw
    undoing: bool
    steps: list[SavedStep] | None
    life: int = 0
    steps_counted: int = 0

    @property
    def progressed(self) -> bool:
        """Whether the job has saved a step since its attempts were last counted: then they count from 1 again."""
        return sum(step.done for step in self.steps or ()) > self.steps_counted

    @property
    def last_n(self) -> int:
        """The number of the latest step."""
        return max((step.n for step in self.steps or ()), default=0)


class _Undoing(msgspec.Struct):
    undoing: bool


# However few attempts a job has, there are so many to undo it.
LEAST_UNDO_ATTEMPTS = 20
_undoing = msgspec.json.Decoder(_Undoing)


def is_undoing(journal: str | None) -> bool:
    """Whether a job was claimed to be undone."""
    try:
        return journal is not None and _undoing.decode(journal).undoing
    except RecursionError:
        return False  # a value in it is nested too deep: the job cannot be run, nor undone


class NewStep(msgspec.Struct, gc=False):
    """A step to be saved; `value` is JSON. One that is `pending` ends later: after `delay` seconds or at
    `until` (seconds since 1970), or with an event."""

    key: str
    n: int
    kind: str
    value: str | None = None
    error: SavedError | None = None
    fingerprint: int | None = None
    seconds: float | None = None
    undo: bool = False
    replaced: bool = False
    pending: bool = False
    delay: float | None = None
    until: float | None = None
    event: str | None = None
    event_key: str | None = None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A step as people look it up. `value` is a plain JSON value; one over 64 kB is not shown, but `large` is True."""

    n: int
    key: str
    kind: StepKind
    pending: bool
    """It has begun and not ended: a sleep, a wait, a child."""
    timed_out: bool
    value: Any
    large: bool
    error: str | None
    cancelled: bool
    """It is a child that was cancelled."""
    saved_at: datetime
    seconds: float | None
    """How long it took."""
    until: datetime | None
    """When the sleep ends, or the wait is given up."""
    child_id: UUID | None
    event: str | None
    event_key: str | None
