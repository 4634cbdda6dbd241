"""Calls that register workers, renew their leases, elect a leader, and pause and stop the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString
from uuid import UUID

from stepwell.postgres.queries.query import Act, Query, as_tuple, repeatable_query


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a control: exactly one of these is given."""

    queue: str | None = None
    task: str | None = None
    worker: UUID | None = None
    everything: bool = False

    @property
    def params(self) -> tuple[str | None, str | None, UUID | None, bool]:
        return self.queue, self.task, self.worker, self.everything

    @property
    def text(self) -> str:
        given = {"queue": self.queue, "task": self.task, "worker": self.worker}
        return next((f"{kind} {name}" for kind, name in given.items() if name is not None), "everything")


@dataclass(frozen=True, slots=True)
class Orders:
    """Instructions for a worker: the jobs it must stop, what it must not claim, and whether it must stop itself."""

    cancelling: list[str]
    paused: bool
    paused_queues: list[str]
    paused_tasks: list[str]
    stopping: bool
    number: int
    """The worker's number. Each worker that registers gets a higher one."""
    stack_requests: list[str]
    """Requests for the stacks of its handlers, and the jobs that they are about."""
    stack_jobs: list[str]


@dataclass(frozen=True, slots=True)
class Control:
    """A control of the fleet; `name` is empty if the target is everything."""

    action: Literal["pause", "stop"]
    scope: Literal["everything", "queue", "task", "worker"]
    name: str
    asked_at: datetime


def gauges() -> Query[tuple[str, str | None, float]]:
    """Numbers about the whole database, by name and queue, for metrics."""
    return repeatable_query("select name, queue, value from stepwell.gauges()", (), as_tuple)


def register_worker(
    host: str,
    pid: int,
    version: str,
    queues: Sequence[str],
    tasks: str,
    concurrency: int,
    lease: float,
    age: float = 0.0,
    begun: int | None = None,
    owner: str | None = None,
    schedules: Sequence[str] = (),
    stale_after: float | None = None,
    named: bool | None = None,
    signatures: Sequence[int] | None = None,
    settings: str | None = None,
) -> Query[str]:
    return Query(
        "select stepwell.register_worker(%s::text, %s::integer, %s::text, %s::text[], %s::text, %s::integer,"
        " %s::double precision, %s::double precision, %s::integer, %s::text, %s::text[], %s::double precision,"
        " %s::boolean, %s::integer[], %s::text)::text",
        (
            host,
            pid,
            version,
            list(queues),
            tasks,
            concurrency,
            lease,
            age,
            begun,
            owner,
            list(schedules),
            stale_after,
            named,
            None if signatures is None else list(signatures),
            settings,
        ),
    )


def renew(worker_id: str, lease: float, running: int) -> Query[Orders]:
    return Query(
        "select cancelling::text[], paused, paused_queues, paused_tasks, stopping, number, stack_requests::text[],"
        " stack_jobs::text[]"
        " from stepwell.renew(%s::uuid, %s::double precision, %s::integer)",
        (worker_id, lease, running),
        Orders,
    )


def unregister_worker(worker_id: str) -> Query[list[UUID]]:
    return Query("select stepwell.unregister_worker(%s::uuid)", (worker_id,))


@dataclass(frozen=True, slots=True)
class Rival:
    """Another app whose workers may take the same jobs."""

    owner: str
    tasks: list[str]


def rivals(worker_id: str) -> Query[Rival]:
    return Query("select owner, tasks from stepwell.rivals(%s::uuid)", (worker_id,), Rival)


def lead(worker_id: str, lease: float) -> Query[bool]:
    return Query("select stepwell.lead(%s::uuid, %s::double precision)", (worker_id, lease))


@dataclass(frozen=True, slots=True)
class Rescued:
    """A job of a dead worker that was rescued."""

    job_id: str
    task: str
    queue: str
    attempt: int
    message: str
    failed: bool
    """Whether that was its last attempt, so that the job failed permanently."""


@dataclass(frozen=True, slots=True)
class Led:
    """Whether a worker is the leader, and the jobs that it rescued. A row has one rescued job, or none."""

    leads: bool
    why: str | None
    """Why the rescue failed."""
    rescued: Rescued | None


def lead_and_rescue(worker_id: str, lease: float) -> Query[Led]:
    def row(leads: bool, why: str | None, job_id: str | None, *rescued: Any) -> Led:
        return Led(leads, why, None if job_id is None else Rescued(job_id, *rescued))

    return Query(
        "select leads, why, job_id::text, task, queue, attempt, message, failed"
        " from stepwell.lead_and_rescue(%s::uuid, %s::double precision)",
        (worker_id, lease),
        row,
    )


def rescue_unregistered() -> Query[Rescued]:
    return Query(
        "select job_id::text, task, queue, attempt, message, failed from stepwell.rescue_unregistered()", (), Rescued
    )


_TARGET: LiteralString = "(%s::text, %s::text, %s::uuid, %s::boolean)"


def pause(target: Target) -> Query[None]:
    return repeatable_query("select stepwell.pause" + _TARGET, target.params, act=Act("pause", target.text))


def resume(target: Target) -> Query[bool]:
    return Query("select stepwell.resume" + _TARGET, target.params, act=Act("resume", target.text))


def stop(target: Target) -> Query[int]:
    return Query("select stepwell.stop" + _TARGET, target.params, act=Act("stop", target.text))


def pauses() -> Query[Control]:
    return repeatable_query(
        "select action, scope, name, asked_at from stepwell.controls where action = 'pause' order by scope, name",
        row=Control,
    )


def notify_unless_full(channel: str) -> Query[None]:
    """Returns no row if the notification queue is so full that stepwell.notify sends nothing either."""
    return Query("select pg_notify(%s, '') where pg_notification_queue_usage() < 0.5", (channel,))
