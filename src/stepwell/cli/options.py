"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli.logs import LEVELS

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

ValueOption = Annotated[
    str | None, typer.Option("--value", metavar="JSON", help="The value to send.  [default: null]", show_default=False)
]

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="The app to load, such as shop.jobs:app for 'app' in shop/jobs.py.",
        show_default=False,
    ),
]

LogLevelOption = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL", help=f"Lowest level to log: {', '.join(LEVELS)}.  [default: info]", show_default=False
    ),
]
