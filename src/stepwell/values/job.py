"""A job as a value: as its worker claims it, and as people look it up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from stepwell.values.step import StepInfo

State = Literal["scheduled", "ready", "running", "waiting", "blocked", "succeeded", "failed", "cancelled"]
LIVE: tuple[State, ...] = ("scheduled", "ready", "running", "waiting", "blocked")
FINISHED: tuple[State, ...] = ("succeeded", "failed", "cancelled")


# gc=False, here and in other values that are made by the thousand: their fields are text and numbers, so they cannot be
# part of a cycle and the garbage collector need not look at them.
class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job in a worker's hands. The id stays text and the time a number: they are only handed back."""

    id: str
    queue: str
    task: str
    args: str
    metadata: str | None
    epoch: int
    attempt: int
    rank: int
    run_at: int
    """In microseconds since 1970, as the next."""
    scheduled_for: int | None = None
    parent_id: str | None = None
    journal: str | None = None
    """What a durable job has saved, as JSON; None: nothing."""
    max_attempts: int | None = None
    """The job's own limit; None: the task's counts."""
    unread: int | None = None
    """How many bytes it holds, if it came without them: no args, no metadata, no journal."""
    more: bool | None = None
    """Whether the claim ended with what it brought because that was enough bytes, and not for want of jobs."""
    policy: str | None = None
    """The job's own policy, as JSON; None: the task's."""

    @property
    def size(self) -> int:
        """About how many bytes of text it holds."""
        return len(self.args or "") + len(self.metadata or "") + len(self.journal or "")


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to enqueue: one call of a task, with args, metadata and policy already JSON."""

    task: str
    args: str
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    metadata: str | None = None
    max_attempts: int | None = None
    owner: str | None = None
    """Only workers of the app of this name run the job; None: any worker that knows the task."""
    policy: str | None = None
    """The job's own policy, as JSON; None: the task's."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that did not succeed."""

    attempt: int
    epoch: int
    reason: str
    """error, timeout, lease_lost, bad_args or bad_result."""
    type: str
    message: str
    traceback: str | None
    worker_id: UUID | None
    claimed_at: datetime | None
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class JobInfo:
    """All that is known of a job. `args`, `metadata`, `result` and `progress` are plain JSON values."""

    id: UUID
    state: State
    task: str
    queue: str
    priority: int
    args: dict[str, Any]
    metadata: dict[str, Any] | None
    result: Any
    error: str | None
    progress: Any
    epoch: int
    attempt: int
    max_attempts: int | None
    cancelling: bool
    worker_id: UUID | None
    enqueued_at: datetime
    run_at: datetime | None
    """When it is due; None: it waits for an event or its children, without a limit."""
    claimed_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    schedule_id: UUID | None
    """The schedule that enqueued it; None: somebody else did."""
    scheduled_for: datetime | None
    """The tick it runs for."""
    cursor: str | None
    """The step of a chain, or the state of a machine, at which it stands; None: the first, or it is neither."""
    parent_id: UUID | None
    """The job that spawned it."""
    forked_from: UUID | None
    undoing: bool
    """It has failed or was cancelled, and its steps are being undone."""
    owner: str | None
    """The app whose workers run it; None: any worker that knows the task."""
    misfit_until: datetime | None
    """Its args do not fit the code of the workers that claimed it, as `error` says: until then it waits for one that
    they fit. None: it does not wait for that."""
    policy: dict[str, Any] | None
    """How it is tried, timed and kept, as `using` said: of `retry`, `timeout`, `keep` and `keep_failed` those that were
    given, in seconds. None: as its task."""
    failures: tuple[Failure, ...] = ()
    steps: tuple[StepInfo, ...] = ()
    """What a durable job has saved, in order."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended, for those who wait for it; `state` None: no such job is known."""

    id: str
    state: State | None
    task: str | None
    result: str | None
    error: str | None
    type: str | None
    message: str | None
    traceback: str | None
