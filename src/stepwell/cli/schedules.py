"""`stepwell schedules`: list, show, pause, resume, trigger, backfill, delete and preview schedules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import psycopg
import typer

from stepwell.app import App
from stepwell.calendar.schedule import Backfill, ScheduleInfo, Tick
from stepwell.calendar.schedule import preview as next_times
from stepwell.cli import parse
from stepwell.cli.completion import complete_schedule
from stepwell.cli.database import DatabaseOption, connect, open_database
from stepwell.cli.group import new_group
from stepwell.cli.options import JsonOption, YesOption, check_can_ask
from stepwell.cli.output import Column, ago, compact, dump, fields, record, say, table
from stepwell.cli.wording import catchup_text, policy_text, timing_text
from stepwell.errors import ScheduleNotFound
from stepwell.errors.text import nearest
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.schedules.handle import ScheduleHandle
from stepwell.telemetry.bus import counted
from stepwell.values.duration import describe, local_time

T = TypeVar("T")

group = new_group("List, inspect and change schedules.")

NameArgument = Annotated[
    str,
    typer.Argument(autocompletion=complete_schedule, metavar="NAME", help="The schedule's name.", show_default=False),
]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", metavar="APP", help="The app, if several have a schedule of that name.")
]
CountOption = Annotated[int, typer.Option("-n", metavar="N", help="Show N times.", min=1, max=10_000)]


@group.command("list")
def list_schedules(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List all schedules, with their next and last runs."""
    with connect(database) as connection:
        schedules = fetch(connection, queries.schedules.schedules())
        now = fetch(connection, queries.reads.clock())[0]
    if json:
        dump([record(schedule) for schedule in schedules])
        return
    table(
        schedules,
        [
            Column("schedule", lambda schedule: schedule.name, cut=True),
            Column("owner", lambda schedule: schedule.owner, cut=True),
            Column("task", lambda schedule: schedule.task, cut=True),
            Column("when", lambda schedule: timing_text(schedule.cron, schedule.tz, schedule.every), cut=True),
            Column(
                "next", lambda schedule: "paused" if schedule.paused_at else ago(schedule.next_run_at, now) or "never"
            ),
            Column("last", lambda schedule: ago(schedule.last_run_at, now)),
            Column("live", lambda schedule: schedule.live, right=True),
            Column("overlap", lambda schedule: schedule.overlap),
            Column("source", lambda schedule: "code" if schedule.declared else "run time"),
        ],
        empty="there are no schedules: a worker creates those in code when it starts",
    )


@group.command("show")
def show(
    name: NameArgument,
    owner: OwnerOption = None,
    n: CountOption = 5,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show a schedule, its last ticks and its next ones."""
    with connect(database) as connection:
        schedule = _find(connection, name, owner)
        ticks = fetch(connection, queries.schedules.recent_ticks(schedule.owner, schedule.name, n))
    coming = schedule.preview(n)
    if json:
        dump({**record(schedule), "preview": coming, "ticks": [record(tick) for tick in ticks]})
        return
    fields(
        [
            ("schedule", schedule.name),
            ("owner", schedule.owner),
            ("task", schedule.task),
            ("args", compact(schedule.args)),
            ("queue", schedule.queue),
            ("priority", schedule.priority),
            ("metadata", "none" if schedule.metadata is None else compact(schedule.metadata)),
            ("max attempts", schedule.max_attempts or "as the task"),
            (
                "policy",
                "as the task" if schedule.policy is None else policy_text(schedule.policy, schedule.max_attempts),
            ),
            ("when", timing_text(schedule.cron, schedule.tz, schedule.every)),
            ("overlap", schedule.overlap),
            ("catchup", catchup_text(schedule.catchup)),
            ("jitter", describe(schedule.jitter) if schedule.jitter else "none"),
            ("source", "code" if schedule.declared else "run time"),
            ("paused", local_time(schedule.paused_at) or "no"),
            ("live runs", schedule.live),
            ("next", "\n".join(at.isoformat(" ") for at in coming) or "never"),
            ("last", "\n".join(_describe(tick, schedule) for tick in ticks) or "none yet"),
        ]
    )


@group.command("pause")
def pause(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Pause a schedule. Jobs that it has enqueued still run."""
    _do(database, name, owner, lambda handle: handle.pause())
    say(f"schedule {name} is paused")


@group.command("resume")
def resume(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Resume a paused schedule. Runs missed during the pause are skipped."""
    _do(database, name, owner, lambda handle: handle.resume())
    say(f"schedule {name} is resumed")


@group.command("trigger")
def trigger(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Enqueue a run now, outside the schedule, and print the job's id."""
    say(str(_do(database, name, owner, lambda handle: handle.trigger()).id))


@group.command("backfill")
def backfill(
    name: NameArgument,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="The first tick: a time, or how long ago, such as 2d.", show_default=False),
    ],
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only ticks before this time.  [default: now]", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many runs there would be.")] = False,
    yes: YesOption = False,
    owner: OwnerOption = None,
    database: DatabaseOption = None,
) -> None:
    """Enqueue runs for past ticks that had none.

    These are ticks at which no worker ran, ticks that were skipped, and ticks before the schedule was made. A tick has
    at most one run, however often it is backfilled. At most 1,000 ticks at a time.
    """
    begin, end = _moment(since, "--since"), None if until is None else _moment(until, "--until")
    if not dry_run:
        check_can_ask("stepwell schedules backfill", yes=yes)
    with parse.usage_errors():
        planned = _do(database, name, owner, lambda handle: handle.backfill(begin, end, preview=True))
    say(_backfilled(planned, "would be enqueued" if dry_run else "will be enqueued"))
    if dry_run or not planned.enqueued:
        return
    if not yes and not typer.confirm(f"Enqueue {counted(planned.enqueued, 'run')}?"):
        raise typer.Abort
    done = _do(database, name, owner, lambda handle: handle.backfill(begin, end))
    say(_backfilled(done, "was enqueued" if done.enqueued == 1 else "were enqueued"))


def _moment(typed: str, option: str) -> datetime:
    """A time with a time zone, or how long ago."""
    if "-" in typed or ":" in typed:
        return parse.moment(typed, option)
    return datetime.now(UTC) - timedelta(seconds=parse.duration(typed, option))


def _backfilled(found: Backfill, became: str) -> str:
    text = f"{counted(found.ticks, 'tick')}: {counted(found.enqueued, 'run')} {became}, {found.ran} ran already"
    if found.unknown:
        text += f", {found.unknown} are too old to know whether they ran"
    if found.taken:
        text += f", {found.taken} have a unique key that another job has"
    return text


@group.command("delete")
def delete(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Delete a schedule. One that is declared in code returns when a worker starts."""
    _do(database, name, owner, lambda handle: handle.delete())
    say(f"schedule {name} is deleted")


@group.command("preview")
def preview(
    when: Annotated[
        str,
        typer.Argument(
            metavar="WHEN", help="A cron expression in quotes, or an interval such as 15m.", show_default=False
        ),
    ],
    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="The time zone of the cron expression.")
    ] = None,
    n: CountOption = 5,
    json: JsonOption = False,
) -> None:
    """Print the next times of a cron expression or interval. Needs no database."""
    with parse.usage_errors():
        times = next_times(when, tz=tz, n=n)
    if json:
        dump(times)
        return
    say(*(at.isoformat(" ") for at in times))


def _do(database: str | None, name: str, owner: str | None, change: Callable[[ScheduleHandle], T]) -> T:
    with open_database(database) as found:
        with found.connection() as connection:
            schedule = _find(connection, name, owner)
        job = App(database, name=schedule.owner).job
        return change(ScheduleHandle(schedule.name, schedule.owner, found, job))


def _find(connection: psycopg.Connection[Any], name: str, owner: str | None) -> ScheduleInfo:
    found = fetch(connection, queries.schedules.schedules(owner, parse.name(name, "NAME")))
    if not found:
        known = {schedule.name for schedule in fetch(connection, queries.schedules.schedules(owner))}
        hint = nearest(name, known) or ": 'stepwell schedules list' lists them all"
        raise ScheduleNotFound(f"there is no schedule {name!r}{hint}")
    if len(found) > 1:
        raise parse.UsageError(
            f"{len(found)} apps have a schedule {name!r}: choose with --owner "
            + " or --owner ".join(schedule.owner for schedule in found)
        )
    return found[0]


def _describe(tick: Tick, schedule: ScheduleInfo) -> str:
    # In the time zone of the schedule, like the next times.
    at = tick.at.astimezone(ZoneInfo(schedule.tz) if schedule.tz else UTC)
    became = f"skipped: {tick.skipped}" if tick.skipped else str(tick.job_id)
    return f"{at.isoformat(' ')}  {became}{', triggered' if tick.triggered else ''}"
