"""`stepwell doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import typer

from stepwell.cli.checks import examine
from stepwell.cli.options import JsonOption
from stepwell.cli.output import dump, record, status
from stepwell.cli.session import DatabaseOption, explained
from stepwell.postgres.database import Database


def doctor(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """Look for trouble: schema, notifications, waiting jobs, dead rows, workers. Exit code 1 if there is a problem,
    also if the schema cannot be checked."""
    found = Database(database, pool_size=1, create=False)
    try:
        with explained(found):
            findings = examine(found)
    finally:
        found.close()
    if json:
        dump([record(finding) for finding in findings])
    else:
        for finding in findings:
            status(finding.status, f"{finding.check}: {finding.text}")
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(1)
