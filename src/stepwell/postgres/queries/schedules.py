"""Calls that make, change, fire and read schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from stepwell.calendar.schedule import DueSchedule, NewSchedule, ScheduleInfo, Tick, from_timing
from stepwell.postgres.queries.arrays import bare, times
from stepwell.postgres.queries.query import Query, repeatable_query

_DUE: LiteralString = "select id::text, name, version, cron, tz, every, catchup, due_at, due_in, looked_at from "


def put_schedules(
    owner: str,
    schedules: Sequence[NewSchedule],
    nexts: Sequence[datetime | None],
    *,
    declared: bool,
    named: bool = False,
) -> Query[None]:
    timings = [from_timing(schedule.timing) for schedule in schedules]
    return Query(
        "select stepwell.put_schedules(%s::text, %s::boolean, %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::integer[], %s::text[], %s::text[], %s::double precision[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::boolean, %s::text[], %s::integer[], %s::text[])",
        (
            owner,
            declared,
            [schedule.name for schedule in schedules],
            [schedule.task for schedule in schedules],
            [schedule.args for schedule in schedules],
            [schedule.queue for schedule in schedules],
            [schedule.priority for schedule in schedules],
            [cron for cron, _, _ in timings],
            [tz for _, tz, _ in timings],
            [every for _, _, every in timings],
            [schedule.overlap for schedule in schedules],
            [schedule.catchup for schedule in schedules],
            [schedule.jitter for schedule in schedules],
            list(nexts),
            named,
            [schedule.metadata for schedule in schedules],
            [schedule.max_attempts for schedule in schedules],
            [schedule.policy for schedule in schedules],
        ),
    )


def remove_schedules(owner: str, names: Sequence[str], *, except_these: bool = False) -> Query[list[str]]:
    return Query(
        "select stepwell.remove_schedules(%s::text, %s::text[], %s::boolean)", (owner, list(names), except_these)
    )


def remove_stale_schedules() -> Query[list[str]]:
    return Query("select stepwell.remove_stale_schedules()")


def schedule_times(after: str | None) -> Query[DueSchedule]:
    return Query(_DUE + "stepwell.schedule_times(%s::uuid)", (after,), DueSchedule)


def rewind_schedules(wrong: Sequence[DueSchedule], nexts: Sequence[datetime]) -> Query[int]:
    return Query(
        "select stepwell.rewind_schedules(%s::uuid[], %s::integer[], %s::timestamptz[], %s::timestamptz[])",
        (
            [schedule.id for schedule in wrong],
            [schedule.version for schedule in wrong],
            [schedule.due_at for schedule in wrong],
            list(nexts),
        ),
    )


def due_schedules(without: Sequence[str], limit: int = 100) -> Query[DueSchedule]:
    return Query(_DUE + "stepwell.due_schedules(%s::uuid[], %s::integer)", (list(without), limit), DueSchedule)


@dataclass(frozen=True, slots=True)
class Fired:
    """How many jobs were enqueued, and which schedules could not be fired, and why."""

    enqueued: int
    left_ids: list[str]
    left_why: list[str | None]
    """None: another transaction has locked it."""


def tick(
    due: Sequence[DueSchedule], nexts: Sequence[datetime | None], ticks: Sequence[Sequence[datetime]]
) -> Query[Fired]:
    pairs = [(schedule.id, at) for schedule, ats in zip(due, ticks, strict=True) for at in ats]
    return Query(
        "select enqueued, left_ids::text[], left_why from stepwell.tick(%s::uuid[], %s::integer[], %s::timestamptz[],"
        " %s::timestamptz[], %s::uuid[], %s::timestamptz[])",
        (
            bare(schedule.id for schedule in due),
            bare(schedule.version for schedule in due),
            times(schedule.due_at for schedule in due),
            times(nexts),
            bare(schedule_id for schedule_id, _ in pairs),
            times(at for _, at in pairs),
        ),
        Fired,
    )


def pause_schedule(owner: str, name: str) -> Query[bool]:
    return Query("select stepwell.pause_schedule(%s::text, %s::text)", (owner, name))


def resume_schedule(schedule_id: UUID, version: int, next_at: datetime | None) -> Query[bool]:
    return Query(
        "select stepwell.resume_schedule(%s::uuid, %s::integer, %s::timestamptz)", (schedule_id, version, next_at)
    )


def trigger_schedule(owner: str, name: str) -> Query[str | None]:
    return Query("select stepwell.trigger_schedule(%s::text, %s::text)::text", (owner, name))


def schedules(owner: str | None = None, name: str | None = None) -> Query[ScheduleInfo]:
    return repeatable_query(
        "select id, owner, name, task, args, queue, priority, cron, tz, every, overlap, catchup, jitter, declared,"
        " version, created_at, paused_at, next_run_at, last_run_at, last_job_id, live,"
        " metadata, max_attempts, policy from stepwell.schedules"
        " where (%s::text is null or owner = %s::text) and (%s::text is null or name = %s::text) order by owner, name",
        (owner, owner, name, name),
        ScheduleInfo,
    )


def recent_ticks(owner: str, name: str, limit: int) -> Query[Tick]:
    return repeatable_query(
        "select at, handled_at, job_id, skipped, triggered from stepwell.ticks"
        " where owner = %s::text and name = %s::text order by at desc limit %s::integer",
        (owner, name, limit),
        Tick,
    )
