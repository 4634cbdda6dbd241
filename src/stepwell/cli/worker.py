"""`stepwell worker`: run an app's jobs."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from stepwell.app import App
from stepwell.cli import parse, supervised
from stepwell.cli.database import DatabaseOption
from stepwell.cli.load_app import load_app
from stepwell.cli.logs import check_format, check_level, set_up_logging
from stepwell.cli.metrics_options import (
    MetricsHostOption,
    MetricsPortOption,
    MetricsSocketOption,
    observe_processes,
    serve_metrics,
)
from stepwell.cli.options import AppArgument, LogFormatOption, LogLevelOption
from stepwell.cli.output import say
from stepwell.cli.queue_options import ConcurrencyOption, QueuesOption, read_balance, read_queues
from stepwell.errors import ConfigError
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.supervisor.lifeline import LifelineListener


def worker(
    context: typer.Context,
    app: AppArgument,
    queue: QueuesOption = None,
    concurrency: ConcurrencyOption = None,
    balance: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How queues share slots: round_robin, strict (in the order given), or weights such as "
            "mail=3,default=1.",
        ),
    ] = "round_robin",
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for running jobs before handing them back.")
    ] = "30s",
    lease: Annotated[
        str, typer.Option(metavar="DURATION", help="Other workers take over its jobs after this long without renewal.")
    ] = "20s",
    renew: Annotated[str, typer.Option(metavar="DURATION", help="How often to renew the lease.")] = "5s",
    poll: Annotated[
        str, typer.Option(metavar="DURATION", help="How often to look for jobs that no notification announced.")
    ] = "2s",
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Run N processes, each with --concurrency slots, and replace those that die.",
            min=1,
            max=1000,
            show_default=False,
        ),
    ] = None,
    max_jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Replace a process after it has run N jobs. Jobs still running get --grace to finish.",
            min=1,
            show_default=False,
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Replace a process that uses more memory than this, such as 512MB or 1.5GB. Resident memory is "
            "checked every second (on macOS its peak); the processes of tasks with process=True are not counted.",
            show_default=False,
        ),
    ] = None,
    max_held: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Stop claiming while the data of the jobs held (args, saved steps, results) exceeds this.",
        ),
    ] = "256MB",
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file below the current directory changes.")
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Exit with code 1 if the database is away at the start, instead of waiting."),
    ] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = "text",
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    metrics_socket: MetricsSocketOption = None,
    database: DatabaseOption = None,
    lifeline: supervised.LifelineOption = None,
    database_given: supervised.DatabaseGivenOption = False,
) -> None:
    """Run an app's jobs until SIGTERM or SIGINT (Ctrl-C).

    The first signal waits up to --grace for running jobs. The second hands them back without using an attempt.
    --database is for an app that names no database in its code. With --processes, --max-jobs, --max-memory or --reload,
    a supervisor starts the worker processes and passes signals on; a third signal kills them.
    """
    check_level(log_level)
    as_json = check_format(log_format)
    durations: dict[str, Any] = {
        name: parse.duration(typed, f"--{name}")
        for name, typed in (("grace", grace), ("lease", lease), ("renew", renew), ("poll", poll))
    }
    queues, sharing = read_queues(queue or [], concurrency), read_balance(balance)
    held = parse.size(max_held, "--max-held")
    memory = None if max_memory is None else parse.size(max_memory, "--max-memory")
    database = database or context.find_root().params.get("database") or supervised.passed_database(database_given)
    if lifeline is None and (processes is not None or max_jobs is not None or memory is not None or reload):
        from stepwell.supervisor.supervisor import supervise

        set_up_logging(log_level, one_of_many=True, as_json=as_json)
        arguments = supervised.arguments_for_process(
            context, **supervised.pass_database(database), processes=None, reload=None, metrics_port=None
        )
        with observe_processes(processes or 1, metrics_port, metrics_host) as observer:
            raise typer.Exit(supervise(arguments, processes or 1, reloading=reload, observer=observer))
    supervisor = LifelineListener(lifeline) if lifeline is not None else None
    if database is not None:
        # Set before the app is imported, and for the processes of tasks with process=True, which import it again.
        os.environ[ENVIRONMENT] = database
    with supervised.misconfigured_exit(supervisor is not None):
        found = load_app(app)
        if database is not None:
            _check_database(found, app, database)
        elif ENVIRONMENT in os.environ and found.database.address.given not in (None, os.environ[ENVIRONMENT]):
            say(
                f"{ENVIRONMENT} is set but not used: {app!r} names its database in the code; write App() to use the "
                "variable"
            )
            sys.stdout.flush()

    from stepwell.worker import Worker
    from stepwell.worker.process_limits import ProcessLimits
    from stepwell.worker.worker_main import run_worker

    with parse.usage_errors():
        runs = Worker(
            found,
            queues=queues,
            concurrency=concurrency,
            balance=sharing,
            max_held_size=held,
            wait=not no_wait,
            **durations,
        )
    set_up_logging(log_level, one_of_many=supervisor is not None, as_json=as_json)
    with supervised.misconfigured_exit(supervisor is not None):
        serve_metrics(found, metrics_port, metrics_host, metrics_socket)
    limits = ProcessLimits(max_jobs, memory)
    raise typer.Exit(run_worker(found, runs, supervisor, limits, wait=not no_wait, report=supervised.report_error))


def _check_database(app: App, path: str, database: str) -> None:
    given = Database(database, pool_size=1)
    try:
        if app.dsn != given.dsn:
            raise ConfigError(
                f"{path!r} names its database in the code, and --database names another: leave one of them out"
            )
    finally:
        given.close()
