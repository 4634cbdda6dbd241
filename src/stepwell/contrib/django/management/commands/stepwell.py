"""`manage.py stepwell COMMAND`: the command line of Stepwell for this site's app and database."""
# pyright: basic

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from stepwell.contrib.django.settings import read_settings
from stepwell.contrib.django.site_address import connection_string
from stepwell.errors.text import how_to_install
from stepwell.postgres.address import ENVIRONMENT

_APP = "stepwell.contrib.django.project:app"
# These take MODULE:APP as their first argument.
_WITH_APP = ("worker", "tasks", "web", "mcp")
_DJANGOS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    help = 'Run a command of Stepwell for this site: "worker", "migrate", "jobs list", ... See "stepwell --help".'
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("command", help='The command, such as "worker" or "jobs".')
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Its arguments, as of the stepwell command.")

    def handle(self, *_: Any, command: str, arguments: Sequence[str], **__: Any) -> None:
        try:
            from stepwell.cli.entry_point import run_command
        except ModuleNotFoundError as error:
            if error.name not in ("rich", "typer"):
                raise
            raise CommandError(f"the command is not installed: {how_to_install('worker')}") from None
        given = _without_djangos(arguments)
        if any(one == "-d" or one.startswith("--database") for one in given):
            raise CommandError("the database is that of the setting STEPWELL: leave out --database")
        if command in _WITH_APP:
            self.check()
            given = [_APP, *_all_queues(command, given), *given]
            # The processes that a supervisor starts must find the site, wherever manage.py was called from.
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
        elif command == "dev":
            raise CommandError('"stepwell dev" makes a database of its own: use "manage.py stepwell worker --reload"')
        else:
            os.environ[ENVIRONMENT] = connection_string(read_settings().database)
        if code := run_command([command, *given]):
            sys.exit(code)


def _without_djangos(arguments: Sequence[str]) -> list[str]:
    """Leave out the options that Django itself has already read."""
    kept: list[str] = []
    skipping = False
    for argument in arguments:
        if skipping:
            skipping = False
        elif argument in _DJANGOS:
            skipping = True
        elif not argument.startswith(tuple(f"{name}=" for name in _DJANGOS)):
            kept.append(argument)
    return kept


def _all_queues(command: str, given: Sequence[str]) -> list[str]:
    """A backend with QUEUES = [] takes any queue, and so does its worker, unless it is told which."""
    from stepwell.contrib.django.tasks_api import task_backends

    named = any(one.startswith(("--queue", "-q")) for one in given)
    return ["--queue=*"] if command == "worker" and not named and _any_queue(task_backends.all()) else []


def _any_queue(backends: Sequence[Any]) -> bool:
    from stepwell.contrib.django.backend import StepwellBackend

    return any(isinstance(backend, StepwellBackend) and not backend.queues for backend in backends)
