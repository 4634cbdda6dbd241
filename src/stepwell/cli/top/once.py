"""`stepwell top --once`: print one view, as tables or as JSON."""

from __future__ import annotations

import shutil
from typing import Any

from stepwell.cli.output import Column, dump, say, status, styled, table
from stepwell.cli.top.summary import notices, summary
from stepwell.cli.top.tables import EMPTY, columns_of, cut, fitting, rows_of
from stepwell.cli.top.view import TABS, Record, View
from stepwell.postgres.queries.reads import value_of

_NOTICES = 8
_TITLES = {"jobs": "running jobs", "tasks": "tasks in the last hour"}


def print_json(view: View) -> None:
    """Print all that was read, as one JSON document."""
    dump(
        {
            "now": view.now,
            "read_only": view.read_only,
            "paused": view.paused,
            "states": view.overview["states"],
            "runs_per_second": view.rate,
            "runs_by_minute": view.minutes,
            "notices": list(notices(view)),
            "running": [_decoded(job) for job in view.rows["jobs"]],
            **{tab: view.rows[tab] for tab in TABS if tab != "jobs"},
        }
    )


def _decoded(job: Record) -> Record:
    """The job with its JSON values as such, so that fields that are to be hidden are found in them."""
    return {**job, "args": value_of(job["args"]), "progress": value_of(job["progress"])}


def print_view(view: View) -> None:
    width = shutil.get_terminal_size((120, 24)).columns
    for line in summary(view, width):
        styled(line)
    for notice in notices(view, _NOTICES):
        status("warning", notice)
    for tab in TABS:
        say("", _TITLES.get(tab, tab).upper())
        columns, rows = columns_of(tab, view), rows_of(tab, view)
        kept = fitting(columns, [cells for _, cells in rows], width)
        table(
            [cells for _, cells in rows],
            [_column(columns[place].title, place, widest, columns[place].right) for place, widest in kept.items()],
            empty=EMPTY[tab].format(state=view.state),
        )
        if tab in view.more:
            say(f"and more: these are the first {len(rows)}")


def _column(title: str, place: int, widest: int, right: bool) -> Column[Any]:
    return Column(title, lambda cells: cut(cells[place], widest), cut=True, right=right)
