"""`stepwell limits`: limits and rates by key, as jobs have them, and set at run time."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli import known_names, parse
from stepwell.cli.completion import complete_limit
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, record, say, table, warn
from stepwell.cli.rate_options import BurstOption, SmoothOption, burst_text, check_burst
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import local_time
from stepwell.values.limit_info import LimitInfo
from stepwell.values.setting_text import rate_text

group = typer.Typer(rich_markup_mode=None)

KeyArgument = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_limit, metavar="KEY", help="The key; 'stepwell limits' lists them.", show_default=False
    ),
]
# The most that stepwell.list_limits counts.
_MOST_COUNTED = 10_000


@group.callback(invoke_without_command=True)
def limits(context: typer.Context, json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List or set limits and rates by key.

    Listed are the keys with running or waiting jobs, and those that were set at run time. "held" counts the jobs that
    run or are about to, "waiting" those in line. A number with * was set at run time, in place of that in the code.
    """
    if context.invoked_subcommand is not None:
        return
    with connect(database) as connection:
        found = fetch(connection, queries.limits.limits())
    if json:
        dump([record(limit) for limit in found])
        return
    table(
        found,
        [
            Column("key", lambda limit: limit.key, cut=True),
            Column("most", lambda limit: _set(limit.most, limit.most_is_set), right=True),
            Column("held", lambda limit: _count(limit.held), right=True),
            Column("waiting", lambda limit: _count(limit.waiting), right=True),
            Column("rate", _rate, right=True),
            Column("burst", lambda limit: limit.burst, right=True),
            Column("next", lambda limit: local_time(limit.next_at)),
            Column("set", lambda limit: local_time(limit.set_at)),
        ],
        empty="no job has a limit or rate, and none is set",
    )


@group.command("set")
def change(
    key: KeyArgument,
    size: Annotated[str | None, typer.Argument(hidden=True)] = None,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", help="At most N jobs run at once; 0: none.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="RATE", help="So many jobs start, as 50/s or 10/30s.", show_default=False),
    ] = None,
    burst: BurstOption = None,
    smooth: SmoothOption = False,
    database: DatabaseOption = None,
) -> None:
    """Set the limit or rate of a key, in place of the numbers in the code.

    It takes effect at once, for the whole database. Jobs that run go on. 'stepwell limits unset' undoes it.
    """
    if size is not None:
        raise parse.UsageError(
            f"limits set takes a key and --most or --rate: to change a size, run 'stepwell sizes set {key} {size}'"
        )
    if most is None and rate is None:
        raise parse.UsageError("set what? Give --most N, --rate 50/s, or both")
    check_burst(rate, burst, smooth)
    name = parse.limit_key(key)
    count, per = (None, None) if rate is None else parse.rate(rate, "--rate")
    with connect(database) as connection:
        _warn_of(connection, name, most=most is not None, rate=rate is not None)
        if most is not None:
            fetch(connection, queries.limits.set_limit(name, most))
            say(f"at most {most} with key {name} run at once")
        if count is not None:
            fetch(connection, queries.limits.set_rate(name, count, per, burst, smooth))
            say(f"at most {rate} with key {name} start{burst_text(burst, smooth)}")


@group.command()
def unset(key: KeyArgument, database: DatabaseOption = None) -> None:
    """Remove the settings of a key, so that the code decides again."""
    name = parse.limit_key(key)
    with connect(database) as connection:
        found = fetch(connection, queries.limits.limits())
        if not any(limit.key == name and limit.set_at is not None for limit in found):
            near = known_names.nearest(name, [limit.key for limit in found if limit.set_at is not None])
            raise StepwellError(f"nothing is set for key {name!r}{near}")
        fetch(connection, queries.limits.set_limit(name, None))
        fetch(connection, queries.limits.set_rate(name, None, None, None))
    say(f"key {name} is as in the code")


def _warn_of(connection: psycopg.Connection[Any], key: str, *, most: bool, rate: bool) -> None:
    """Warn if no job has the key: it may be mistyped, or its jobs are yet to come. Warn also of a number that none of
    the jobs is under."""
    try:
        for limit in fetch(connection, queries.limits.limits(key)):
            if rate and limit.rate is None and limit.most is not None and not limit.most_is_set:
                warn(f"jobs have a limit with the key {key!r}, and no rate: a rate is only for tasks that declare one")
            if most and limit.most is None and limit.rate is not None and not limit.rate_is_set:
                warn(f"jobs have a rate with the key {key!r}, and no limit: a limit is only for tasks that declare one")
            return
        found = fetch(connection, queries.limits.limits())
    except psycopg.errors.InsufficientPrivilege:
        return
    near = known_names.nearest(key, [limit.key for limit in found])
    warn(f"no live job has a limit or rate with the key {key!r}{near or ': check the spelling'}")


def _set(number: object, is_set: bool) -> str:
    return "" if number is None else f"{number}{'*' if is_set else ''}"


def _rate(limit: LimitInfo) -> str:
    return _set(None if limit.rate is None else rate_text(limit.rate), limit.rate_is_set)


def _count(count: int) -> str:
    return f"{count}+" if count >= _MOST_COUNTED else str(count)
