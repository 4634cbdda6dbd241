"""Events of callers, with or without a worker: jobs that they enqueue or cancel, and a database that is silent."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import JobEvent, Telemetry, counted
from stepwell.values.duration import describe


class DatabaseSilent(Telemetry, frozen=True):
    """The first call of an app, or a command, has waited for its database for a while, and goes on waiting."""

    level = logging.WARNING
    database: str
    seconds: float
    limit: float | None
    """How long it waits in all; None: as long as connecting may take."""
    error: str | None

    def text(self) -> str:
        why = f" ({self.error})" if self.error else ""
        until = "still trying" if self.limit is None else f"trying until {describe(self.limit)} have passed"
        return (
            f"{self.database} has not answered for {describe(self.seconds)}{why}: {until}. Is Postgres running there, "
            "and is the URL right?"
        )


class JobEnqueued(JobEvent, frozen=True):
    """A new job. Its attempt is 0."""

    level = logging.DEBUG
    in_transaction: bool = False
    """Whether the job exists only once the caller's own transaction commits."""
    parent_id: str | None = None
    """The job whose child it is."""

    def text(self) -> str:
        return f"{self.job} is enqueued in {self.queue}" + (", once its transaction commits" * self.in_transaction)


class GroupEnqueued(Telemetry, frozen=True):
    """A group of jobs. The database makes the ids of its members and does not return them."""

    level = logging.DEBUG
    group_id: str
    count: int
    """The calls that the group was given, without its callback. One whose unique key is taken counts, though it is no
    member."""
    in_transaction: bool = False

    def text(self) -> str:
        return f"group {self.group_id} of {counted(self.count, 'job')} is enqueued"


class CancelAsked(JobEvent, frozen=True):
    """A call cancelled a job. `state` is what that made of it: "cancelled", "running" if its worker was asked to stop
    it, or "ready" if its steps are compensated first."""

    level = logging.DEBUG
    state: str
    reason: str | None

    def text(self) -> str:
        became = {"running": "is asked to stop", "ready": "is compensated"}.get(self.state, "is cancelled")
        return f"{self.job} {became}{f': {self.reason}' if self.reason else ''}"


class GroupCancelAsked(Telemetry, frozen=True):
    """A call cancelled the live members of a group."""

    level = logging.DEBUG
    group_id: str
    count: int
    reason: str | None

    def text(self) -> str:
        return (
            f"{counted(self.count, 'member')} of group {self.group_id} {'is' if self.count == 1 else 'are'} cancelled"
        )
