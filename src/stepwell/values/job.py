"""A job as a value: as it is enqueued, as a worker claims it, and as people read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from stepwell.values.admission import StoredUnique
from stepwell.values.step import StepInfo

State = Literal["scheduled", "ready", "running", "waiting", "blocked", "succeeded", "failed", "cancelled"]
LIVE: tuple[State, ...] = ("scheduled", "ready", "running", "waiting", "blocked")
FINISHED: tuple[State, ...] = ("succeeded", "failed", "cancelled")


# gc=False, here and in other values that are made by the thousand: their fields are text and numbers, so they cannot be
# part of a reference cycle, and the garbage collector need not track them.
class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job that a worker has claimed. The id stays text and the time a number, because they are only passed on."""

    id: str
    queue: str
    task: str
    args: str
    metadata: str | None
    epoch: int
    attempt: int
    rank: int
    run_at: int
    """In microseconds since 1970, like `scheduled_for`."""
    scheduled_for: int | None = None
    parent_id: str | None = None
    journal: str | None = None
    """The saved steps of a durable job, as JSON; None: there are none."""
    max_attempts: int | None = None
    """The job's own limit; None: the task's limit applies."""
    unread: int | None = None
    """The size in bytes of args, metadata and journal, if the claim left them out."""
    more: bool | None = None
    """Whether the claim stopped at its limit of bytes although more jobs were ready."""
    policy: str | None = None
    """The job's own policy, as JSON; None: the task's."""

    @property
    def size(self) -> int:
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
    """The job's own policy, as JSON; None: the task's, and no admission but a plain unique key."""
    unique: StoredUnique | None = None
    """Its unique key, which is part of the policy, too, if there is one; None: it has none."""

    @property
    def whole_policy(self) -> str | None:
        """The policy with the unique key, as JSON."""
        if self.policy is None and self.unique is not None:
            return f'{{"admission":{{"unique":{msgspec.json.encode(self.unique).decode()}}}}}'
        return self.policy


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt."""

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
    """Everything about a job. `args`, `metadata`, `result` and `progress` are plain JSON values."""

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
    """When the job is due; None: it waits for an event or its children, without a timeout."""
    claimed_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    schedule_id: UUID | None
    """The schedule that enqueued the job; None: no schedule did."""
    scheduled_for: datetime | None
    """The tick of the schedule that the job runs for. A fork has that of the job it was forked from, and no
    `schedule_id`."""
    cursor: str | None
    """The current step of a chain or state of a machine; None: the one that it began with, or the task is neither."""
    parent_id: UUID | None
    """The job that spawned this one as its child."""
    forked_from: UUID | None
    undoing: bool
    """Whether the job has failed or was cancelled and its steps are being compensated."""
    owner: str | None
    """The app whose workers run the job; None: any worker that knows the task."""
    misfit_until: datetime | None
    """Until when the job waits for a worker whose code fits its args; `error` says what does not fit. None: the args
    fit, as far as is known."""
    policy: dict[str, Any] | None
    """The job's own policy, as given to `using`: whichever of `retry`, `timeout`, `keep` and `keep_failed` were given,
    in seconds. None: the task's policy applies."""
    group_id: UUID | None = None
    """The group that the job is a member of."""
    failures: tuple[Failure, ...] = ()
    steps: tuple[StepInfo, ...] = ()
    """The saved steps of a durable job, in order."""


class Ended(msgspec.Struct, frozen=True):
    """How a job ended, for callers that wait for it; `state` None: the job does not exist."""

    id: str
    state: State | None
    task: str | None
    result: str | None
    error: str | None
    type: str | None
    message: str | None
    traceback: str | None
