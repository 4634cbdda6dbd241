"""`stepwell schedules`: list, show, pause, resume, trigger, delete, preview."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import psycopg
import typer

from stepwell.app import App
from stepwell.calendar.schedule import ScheduleInfo, Tick
from stepwell.calendar.schedule import preview as next_times
from stepwell.cli import usage
from stepwell.cli.group import new_group
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, compact, dump, fields, local, record, say, table
from stepwell.cli.schedule_text import said_catchup, said_timing
from stepwell.cli.session import DatabaseOption, session
from stepwell.errors import ConfigError, ScheduleNotFound
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.schedules.handle import ScheduleHandle
from stepwell.values.duration import describe

T = TypeVar("T")

group = new_group("Look after schedules.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", metavar="APP", help="Of this app, if several have one of that name.")
]
CountOption = Annotated[int, typer.Option("-n", metavar="N", help="How many times.", min=1, max=10_000)]


@group.command("list")
def list_schedules(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List all schedules, with their next and last runs."""
    with session(database) as connection:
        schedules = fetch(connection, queries.schedules.schedules())
        now = fetch(connection, queries.reads.clock())[0]
    if json:
        dump([record(schedule) for schedule in schedules])
        return
    table(
        [
            Column("schedule", cut=True),
            Column("owner", cut=True),
            Column("task", cut=True),
            Column("when", cut=True),
            Column("next"),
            Column("last"),
            Column("live", right=True),
            Column("overlap"),
            Column("made in"),
        ],
        (
            (
                schedule.name,
                schedule.owner,
                schedule.task,
                said_timing(schedule.cron, schedule.tz, schedule.every),
                "paused" if schedule.paused_at else ago(schedule.next_run_at, now) or "never",
                ago(schedule.last_run_at, now),
                schedule.live,
                schedule.overlap,
                "code" if schedule.declared else "run time",
            )
            for schedule in schedules
        ),
        empty="there are no schedules: those in code are made when a worker starts",
    )


@group.command("show")
def show(
    name: NameArgument,
    owner: OwnerOption = None,
    n: CountOption = 5,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show a schedule, what became of its newest ticks, and when it is due next."""
    with session(database) as connection:
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
            ("max attempts", schedule.max_attempts or "as the task says"),
            ("policy", "as the task says" if schedule.policy is None else compact(schedule.policy)),
            ("when", said_timing(schedule.cron, schedule.tz, schedule.every)),
            ("overlap", schedule.overlap),
            ("catchup", said_catchup(schedule.catchup)),
            ("jitter", describe(schedule.jitter) if schedule.jitter else "none"),
            ("made in", "code" if schedule.declared else "run time"),
            ("paused", local(schedule.paused_at) or "no"),
            ("live runs", schedule.live),
            ("next", "\n".join(at.isoformat(" ") for at in coming) or "never"),
            ("last", "\n".join(_told(tick, schedule) for tick in ticks) or "none yet"),
        ]
    )


@group.command("pause")
def pause(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Let a schedule rest until it is resumed; runs that it has enqueued go on."""
    _do(database, name, owner, lambda handle, connection: handle.pause(connection=connection))
    say(f"schedule {name} is paused")


@group.command("resume")
def resume(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Let a paused schedule go on; what was due meanwhile is not made up for."""
    _do(database, name, owner, lambda handle, connection: handle.resume(connection=connection))
    say(f"schedule {name} is resumed")


@group.command("trigger")
def trigger(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Enqueue a run now, out of turn, and print its id."""
    say(str(_do(database, name, owner, lambda handle, connection: handle.trigger(connection=connection)).id))


@group.command("delete")
def delete(name: NameArgument, owner: OwnerOption = None, database: DatabaseOption = None) -> None:
    """Delete a schedule. One that stands in code comes back when a worker starts."""
    _do(database, name, owner, lambda handle, connection: handle.delete(connection=connection))
    say(f"schedule {name} is deleted")


@group.command("preview")
def preview(
    when: Annotated[
        str, typer.Argument(metavar="WHEN", help="Cron text in quotes, or an interval such as 15m.", show_default=False)
    ],
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="The time zone of the cron text.")] = None,
    n: CountOption = 5,
    json: JsonOption = False,
) -> None:
    """Print the next times at which such a schedule would be due. Needs no database."""
    try:
        times = next_times(when, tz=tz, n=n)
    except ConfigError as error:
        raise usage.Usage(str(error)) from None
    if json:
        dump(times)
        return
    say(*(at.isoformat(" ") for at in times))


def _do(
    database: str | None, name: str, owner: str | None, change: Callable[[ScheduleHandle, psycopg.Connection[Any]], T]
) -> T:
    with session(database) as connection:
        schedule = _find(connection, name, owner)
        return change(App(database, name=schedule.owner).schedule_named(schedule.name), connection)


def _find(connection: psycopg.Connection[Any], name: str, owner: str | None) -> ScheduleInfo:
    found = fetch(connection, queries.schedules.schedules(owner, usage.name(name, "NAME")))
    if not found:
        raise ScheduleNotFound(f"there is no schedule {name!r}: 'stepwell schedules list' shows them all")
    if len(found) > 1:
        raise usage.Usage(
            f"{len(found)} apps have a schedule {name!r}: say which with --owner "
            + " or --owner ".join(schedule.owner for schedule in found)
        )
    return found[0]


def _told(tick: Tick, schedule: ScheduleInfo) -> str:
    # In the zone in which it was due, as those to come.
    at = tick.at.astimezone(ZoneInfo(schedule.tz) if schedule.tz else UTC)
    became = f"skipped: {tick.skipped}" if tick.skipped else str(tick.job_id)
    return f"{at.isoformat(' ')}  {became}{', by hand' if tick.triggered else ''}"
