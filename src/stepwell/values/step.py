"""A step as a value: as it is saved, as a claim loads it, and as people read it."""

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


# A value of more bytes is stored separately and not loaded with the claim.
LARGE = 65536


# A text of at most this many characters cannot be that large: a character takes at most 4 bytes.
SHORT = LARGE // 4


def is_large(value: str) -> bool:
    return len(value) > SHORT and len(value.encode()) > LARGE


class SavedError(msgspec.Struct, frozen=True, gc=False):
    """How a step failed. For a child, `state` says whether it failed or was cancelled. `final`: the step has no
    attempts left under its own policy."""

    type: str | None
    message: str | None
    state: str | None = None
    final: bool = False


class SavedStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step as the claim loads it, with its fields in the order that stepwell.journal writes them."""

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
        """Whether the step succeeded, as stepwell.steps_done counts."""
        return not self.pending and self.error is None and self.kind not in ("retry", "random", "uuid")


class SavedJournal(msgspec.Struct, frozen=True):
    """The journal that the claim of a durable job loads."""

    cursor: str | None
    """The current step of a chain or state of a machine; None: the job is at the one that it begins with, which gets
    its args."""
    input: msgspec.Raw
    undoing: bool
    steps: list[SavedStep] | None
    life: int = 0
    steps_counted: int = 0

    @property
    def progressed(self) -> bool:
        """Whether the job has saved a step since its attempts were last counted: then they count from 1 again."""
        return bool(self.steps) and sum(step.done for step in self.steps) > self.steps_counted

    @property
    def of_function(self) -> bool:
        """Whether a durable function saved these steps, and not a chain or machine."""
        return any(step.kind != "state" for step in self.steps or ())

    @property
    def first_step(self) -> str | None:
        """The step of a chain or state of a machine that the job began with; None: it has not, or that is not known."""
        return next((step.key for step in self.steps or () if step.n == 1 and step.kind == "state"), None)

    @property
    def last_n(self) -> int:
        return max(step.n for step in self.steps) if self.steps else 0


class _Undoing(msgspec.Struct):
    undoing: bool


# Compensation has at least this many attempts, however few the job itself has.
LEAST_UNDO_ATTEMPTS = 20
_undoing = msgspec.json.Decoder(_Undoing)


def is_undoing(journal: str | None) -> bool:
    try:
        return journal is not None and _undoing.decode(journal).undoing
    except RecursionError:
        return False  # a value is nested too deep: the job can neither run nor be compensated


class NewStep(msgspec.Struct, gc=False):
    """A step to save; `value` is JSON. A `pending` step ends later: after `delay` seconds, at `until` (seconds since
    1970), or with an event."""

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
    """A step as people read it. `value` is a plain JSON value; above 64 kB it is left out and `large` is True."""

    n: int
    key: str
    kind: StepKind
    pending: bool
    """Whether it has begun and not ended: a sleep, a wait or a child."""
    timed_out: bool
    value: Any
    large: bool
    error: str | None
    cancelled: bool
    """Whether it is a child that was cancelled."""
    saved_at: datetime
    seconds: float | None
    """How long it took."""
    until: datetime | None
    """When the sleep ends, or the wait times out."""
    child_id: UUID | None
    event: str | None
    event_key: str | None
