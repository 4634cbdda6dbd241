"""`stepwell worker`: run an app's jobs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from stepwell.app import App
from stepwell.cli import usage
from stepwell.cli.load import load_app
from stepwell.cli.logs import LEVELS, check_level, set_up_logging
from stepwell.cli.options import AppArgument
from stepwell.cli.session import DatabaseOption
from stepwell.cli.slots import read_balance, read_queues
from stepwell.db import ENVIRONMENT, Database
from stepwell.errors import ConfigError


def worker(
    context: typer.Context,
    app: AppArgument,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME[=SLOTS]",
            help="Claim from this queue, or, with a * at its end, from all that begin so; with or without slots of its "
            "own. May be repeated. By default those that the tasks name.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            metavar="N",
            help="Jobs at once.  [default: 10]",
            min=1,
            max=100_000,
            show_default=False,
        ),
    ] = None,
    balance: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How queues share slots: round_robin, strict (in the order given), or weights as in mail=3,default=1.",
        ),
    ] = "round_robin",
    grace: Annotated[str, typer.Option(metavar="LENGTH", help="How long to wait for running jobs at the end.")] = "30s",
    lease: Annotated[
        str, typer.Option(metavar="LENGTH", help="Others take its jobs over when it has been silent for so long.")
    ] = "20s",
    renew: Annotated[str, typer.Option(metavar="LENGTH", help="How often it says that it lives.")] = "5s",
    poll: Annotated[str, typer.Option(metavar="LENGTH", help="How often it looks without being told.")] = "1s",
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help=f"{', '.join(LEVELS)}.  [default: info]", show_default=False)
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Run an app's jobs until SIGTERM or SIGINT (Ctrl-C).

    The first signal waits for the jobs that run, up to --grace; the second hands them back, no attempt used. --database
    is for an app that names none itself.
    """
    check_level(log_level)
    database = database or context.find_root().params.get("database")
    if database is not None:
        # Before the app is imported, and for the processes of tasks with process=True, which import it again.
        os.environ[ENVIRONMENT] = database
    found = load_app(app)
    if database is not None:
        _check_database(found, app, database)

    from stepwell.cli.running import run
    from stepwell.worker import Worker

    runs = Worker(
        found,
        queues=read_queues(queue or [], concurrency),
        concurrency=concurrency,
        balance=read_balance(balance),
        grace=usage.length(grace, "--grace"),
        lease=usage.length(lease, "--lease"),
        renew=usage.length(renew, "--renew"),
        poll=usage.length(poll, "--poll"),
    )
    set_up_logging(log_level)
    raise typer.Exit(run(found, runs))


def _check_database(app: App, path: str, database: str) -> None:
    asked = Database(database, pool_size=1)
    try:
        if app.dsn != asked.dsn:
            raise ConfigError(
                f"{path!r} names its own database in the code, and --database another: leave one of them out"
            )
    finally:
        asked.close()
