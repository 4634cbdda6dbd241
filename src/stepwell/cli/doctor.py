"""`stepwell doctor`: print what is wrong, and what to do about it."""

from __future__ import annotations

import typer

from stepwell.cli.database import DatabaseOption
from stepwell.cli.options import JsonOption
from stepwell.cli.output import dump, record, status
from stepwell.doctor import Status, examine
from stepwell.postgres.database import Database
from stepwell.postgres.hints import translated


def doctor(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """Check the database, its jobs and its workers for problems.

    The exit code is 1 if there is a problem, or if the schema cannot be checked.
    """
    found = Database(database, pool_size=1, create=False)
    try:
        with translated(found):
            findings = examine(found)
    finally:
        found.close()
    if json:
        dump([{"check": finding.check, **record(finding)} for finding in findings])
    else:
        checks: dict[tuple[Status, str], list[str]] = {}
        for finding in findings:
            checks.setdefault((finding.status, finding.text), []).append(finding.check)
        for (how, text), names in checks.items():
            status(how, f"{', '.join(names)}: {text}")
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(1)
