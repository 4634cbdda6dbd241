"""Calls that make, change, fire and read schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from stepwell.calendar.schedule import DueSchedule, NewSchedule, ScheduleInfo, Tick, from_timing
from stepwell.postgres.queries.arrays import bare, times
from stepwell.postgres.queries.query import Act, Query, repeatable_query
from stepwell.postgres.queries.reads import value_of

_DUE: LiteralString = "select id::text, name, version, cron, tz, every, catchup, due_at, due_in, looked_at from "

_OTHERS = (
    "owner", "name", "task", "queue", "priority", "cron", "tz", "every", "overlap", "catchup", "jitter", "declared",
    "version", "created_at", "paused_at", "next_run_at", "last_run_at", "live", "max_attempts",
)  # fmt: skip


def put_schedules(
    owner: str,
    schedules: Sequence[NewSchedule],
    nexts: Sequence[datetime | None],
    *,
    declared: bool,
    named: bool = False,
    regained_by: str | None = None,
) -> Query[None]:
    timings = [from_timing(schedule.timing) for schedule in schedules]
    return Query(
        "select stepwell.put_schedules(%s::text, %s::boolean, %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::integer[], %s::text[], %s::text[], %s::double precision[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::boolean, %s::text[], %s::integer[], %s::text[], %s::uuid)",
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
            regained_by,
        ),
    )


def rename_schedules(owner: str, old_names: Sequence[str], names: Sequence[str], *, declared: bool) -> Query[None]:
    return Query(
        "select stepwell.rename_schedules(%s::text, %s::text[], %s::text[], %s::boolean)",
        (owner, list(old_names), list(names), declared),
    )


def remove_schedules(owner: str, names: Sequence[str], *, except_these: bool = False) -> Query[list[str]]:
    return Query(
        "select stepwell.remove_schedules(%s::text, %s::text[], %s::boolean)",
        (owner, list(names), except_these),
        act=None if except_these else Act("delete", f"schedule {', '.join(names)} of {owner}"),
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
    act = Act("pause", f"schedule {name} of {owner}")
    return Query("select stepwell.pause_schedule(%s::text, %s::text)", (owner, name), act=act)


def resume_schedule(
    schedule_id: UUID, version: int, next_at: datetime | None, owner: str = "", name: str = ""
) -> Query[bool]:
    """`owner` and `name` are for the record."""
    return Query(
        "select stepwell.resume_schedule(%s::uuid, %s::integer, %s::timestamptz)",
        (schedule_id, version, next_at),
        act=Act("resume", f"schedule {name} of {owner}"),
    )


def trigger_schedule(owner: str, name: str) -> Query[str | None]:
    act = Act("trigger", f"schedule {name} of {owner}")
    return Query("select stepwell.trigger_schedule(%s::text, %s::text)::text", (owner, name), act=act)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """How many runs were enqueued, or would be, and how many ticks got none; all None: there is no such schedule."""

    due: int | None
    ran: int
    unknown: int
    taken: int
    changed: bool
    """Whether the schedule has another version, for which the ticks must be computed again."""


def backfill_schedule(
    owner: str, name: str, version: int, ats: Sequence[datetime], *, preview: bool
) -> Query[Backfilled]:
    return Query(
        "select due, ran, unknown, taken, changed from stepwell.backfill_schedule(%s::text, %s::text, %s::integer,"
        " %s::timestamptz[], %s::boolean)",
        (owner, name, version, times(ats), preview),
        Backfilled,
        act=None if preview else Act("backfill", f"schedule {name} of {owner}", lambda rows: rows[0].due or 0),
    )


def schedules(owner: str | None = None, name: str | None = None) -> Query[ScheduleInfo]:
    return repeatable_query(
        # As text, since drivers do not agree on what they return for a uuid or for JSON.
        "select id::text, last_job_id::text, args::text, metadata::text, policy::text, owner, name, task, queue,"
        " priority, cron, tz, every, overlap, catchup, jitter, declared, version, created_at, paused_at, next_run_at,"
        " last_run_at, live, max_attempts from stepwell.schedules"
        " where (%s::text is null or owner = %s::text) and (%s::text is null or name = %s::text) order by owner, name",
        (owner, owner, name, name),
        _info,
    )


def _info(
    schedule_id: str, last_job_id: str | None, args: str, metadata: str | None, policy: str | None, *others: Any
) -> ScheduleInfo:
    named = dict(zip(_OTHERS, others, strict=True))
    return ScheduleInfo(
        id=UUID(schedule_id),
        last_job_id=None if last_job_id is None else UUID(last_job_id),
        args=value_of(args),
        metadata=value_of(metadata),
        policy=value_of(policy),
        **named,
    )


def recent_ticks(owner: str, name: str, limit: int) -> Query[Tick]:
    return repeatable_query(
        "select at, handled_at, job_id, skipped, triggered from stepwell.ticks"
        " where owner = %s::text and name = %s::text order by at desc limit %s::integer",
        (owner, name, limit),
        Tick,
    )
