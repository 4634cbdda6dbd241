"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="Where the app is, such as shop.jobs:app for 'app' in shop/jobs.py.",
        show_default=False,
    ),
]

LifelineOption = Annotated[
    int | None,
    typer.Option("--lifeline", hidden=True, help="The descriptor of the pipe from a supervisor, which sets this."),
]
