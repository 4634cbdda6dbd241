"""A change of a job, for callers that watch it: as the database reports it, and as they see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from stepwell.values.job import FINISHED, State
from stepwell.values.step import StepInfo

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a running job is, as its handler has reported with `ctx.progress`."""

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class JobChange(Generic[R]):
    """The state of a job after a change. `R` is the type that its task returns."""

    id: UUID
    mark: str
    """Names this state of the job. The same mark later: the job has not changed."""
    state: State
    attempt: int
    progress: JobProgress | None
    cursor: str | None
    """The current step of a chain or state of a machine; None: the first, or the task is neither."""
    steps: tuple[StepInfo, ...]
    """The steps that were saved, or ended, since the previous change; in the first change, all of them."""
    result: R | None
    """What the handler returned, once the job has succeeded."""
    error: str | None
    """Why the job failed or was cancelled, in one line."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended. This is the last change then."""
        return self.state in FINISHED


class JobSnapshot(msgspec.Struct, frozen=True):
    """A job as the database reports it to watchers; `state` None: the job does not exist."""

    id: str
    mark: int
    state: State | None
    task: str | None
    attempt: int | None
    cursor: str | None
    progress: Any
    result: str | None
    error: str | None
    steps: tuple[StepInfo, ...]
