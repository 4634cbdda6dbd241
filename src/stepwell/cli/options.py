"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli.logs import LEVELS

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

ValueOption = Annotated[str | None, typer.Option("--value", metavar="JSON", help="What it says.  [default: null]")]

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

DatabaseGivenOption = Annotated[
    bool,
    typer.Option(
        "--database-given",
        hidden=True,
        help="A supervisor was given --database, and hands it over in the environment: everybody can read arguments.",
    ),
]

QueuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME[=SLOTS]",
        help="Claim from this queue, or, with a * at its end, from all that begin so; with or without slots of its "
        "own. May be repeated. By default those that the tasks name.",
        show_default=False,
    ),
]
ConcurrencyOption = Annotated[
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
]
LogLevelOption = Annotated[
    str | None, typer.Option(metavar="LEVEL", help=f"{', '.join(LEVELS)}.  [default: info]", show_default=False)
]
