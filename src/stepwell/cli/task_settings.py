"""`stepwell tasks show`: the settings of a task that are in effect, and where each value comes from."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from stepwell.cli import known_names, parse
from stepwell.cli.completion import complete_task
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.load_app import load_app
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, table
from stepwell.errors import StepwellError
from stepwell.errors.text import nearest
from stepwell.jobs.settings import settings_of
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.setting_text import text_of


def show(
    name: Annotated[
        str, typer.Argument(autocompletion=complete_task, metavar="NAME", help="The task.", show_default=False)
    ],
    app: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:APP", help="Read the code, not what a live worker runs."),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="The settings of this job of the task.")
    ] = None,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show the settings of a task that are in effect, and where each value comes from.

    Of several values, the first counts: given at the enqueue, by the task, by the queue, by the app, the default. The
    settings are those of the newest live worker that has the task.
    """
    task = parse.name(name, "NAME")
    job_id = None if job is None else parse.job_id(job)
    settings = None if app is None else _in_code(app, task)
    with connect(database) as connection:
        found = fetch(connection, queries.limits.task_settings(task, settings, job_id))
        if not found:
            doubts = known_names.doubts(connection, {"task": task})
            raise StepwellError(
                doubts[0]
                if doubts
                else f"no live worker says what settings the task {task!r} has: start one, or add --app MODULE:APP"
            )
    if json:
        dump([msgspec.structs.asdict(setting) for setting in found])
        return
    table(
        found,
        [
            Column("setting", lambda setting: setting.name.replace("_", " ")),
            Column("value", text_of, cut=True),
            Column("from", lambda setting: setting.source),
        ],
    )


def _in_code(app: str, task: str) -> str:
    tasks = load_app(app).tasks
    if task not in tasks:
        raise StepwellError(f"the app has no task {task!r}{nearest(task, tasks)}")
    return msgspec.json.encode(settings_of(tasks[task])).decode()
