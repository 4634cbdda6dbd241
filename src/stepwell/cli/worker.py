"""`stepwell worker`: run an app's jobs."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from stepwell.app import App
from stepwell.cli import exits, usage
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
from stepwell.cli.session import DatabaseOption
from stepwell.cli.slots import read_balance, read_queues
from stepwell.errors import ConfigError
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database


def worker(
    context: typer.Context,
    app: AppArgument,
    queue: QueuesOption = None,
    concurrency: ConcurrencyOption = None,
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
    poll: Annotated[str, typer.Option(metavar="LENGTH", help="How often it looks without being told.")] = "2s",
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Run so many processes, each with --concurrency jobs at once, and replace those that die.",
            min=1,
            max=1000,
            show_default=False,
        ),
    ] = None,
    max_jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Replace a process after so many runs of jobs; those that run then have --grace to end.",
            min=1,
            show_default=False,
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Replace a process that holds more than, say, 512MB or 1.5GB, in the same way. It looks every second "
            "at its own resident memory, on macOS at the most it ever was; tasks with process=True are not counted.",
            show_default=False,
        ),
    ] = None,
    max_held: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Claim no more while what the jobs it holds carry (args, saved steps, results) reaches this size.",
        ),
    ] = "256MB",
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a Python file below this directory changes.")
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Exit with 1 if the database is away at the start, and do not wait for it."),
    ] = False,
    log_level: LogLevelOption = None,
    database: DatabaseOption = None,
    lifeline: LifelineOption = None,
    database_given: DatabaseGivenOption = False,
) -> None:
    """Run an app's jobs until SIGTERM or SIGINT (Ctrl-C).

    The first signal waits for the jobs that run, up to --grace; the second hands them back, no attempt used. --database
    is for an app that names none itself. With --processes, --max-jobs, --max-memory or --reload a supervisor starts the
    processes that work, and passes signals on; a third one kills them.
    """
    check_level(log_level)
    lengths: dict[str, Any] = {
        name: usage.length(typed, f"--{name}")
        for name, typed in (("grace", grace), ("lease", lease), ("renew", renew), ("poll", poll))
    }
    queues, sharing = read_queues(queue or [], concurrency), read_balance(balance)
    held = usage.size(max_held, "--max-held")
    memory = None if max_memory is None else usage.size(max_memory, "--max-memory")
    database = database or context.find_root().params.get("database") or handed_over(database_given)
    if lifeline is None and (processes is not None or max_jobs is not None or memory is not None or reload):
        from stepwell.cli.supervisor import supervise

        set_up_logging(log_level, one_of_many=True)
        command = command_line(context, **hand_over(database), processes=None, reload=None)
        raise typer.Exit(supervise(command, processes or 1, reloading=reload))
    supervisor = Obeying(lifeline) if lifeline is not None else None
    if database is not None:
        # Before the app is imported, and for the processes of tasks with process=True, which import it again.
        os.environ[ENVIRONMENT] = database
    with exits.telling(supervisor is not None):
        found = load_app(app)
        if database is not None:
            _check_database(found, app, database)
        elif ENVIRONMENT in os.environ and found.database.url_in_code not in (None, os.environ[ENVIRONMENT]):
            say(
                f"{ENVIRONMENT} is set, but not used here: {app!r} names its own database in the code; write App() to "
                "use the variable"
            )
            sys.stdout.flush()

    from stepwell.cli.recycle import Limits
    from stepwell.cli.running import run
    from stepwell.worker import Worker

    with usage.refusing():
        runs = Worker(
            found,
            queues=queues,
            concurrency=concurrency,
            balance=sharing,
            max_held_size=held,
            wait=not no_wait,
            **lengths,
        )
    set_up_logging(log_level, one_of_many=supervisor is not None)
    raise typer.Exit(run(found, runs, supervisor, Limits(max_jobs, memory), wait=not no_wait))


def _check_database(app: App, path: str, database: str) -> None:
    asked = Database(database, pool_size=1)
    try:
        if app.dsn != asked.dsn:
            raise ConfigError(
                f"{path!r} names its own database in the code, and --database another: leave one of them out"
            )
    finally:
        asked.close()
