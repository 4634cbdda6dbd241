"""Logging for the worker's process: to stderr, in colour on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import logging
import sys

from stepwell.cli.output import clean
from stepwell.cli.usage import Usage

LEVELS = ("debug", "info", "warning", "error")


def check_level(typed: str | None) -> str | None:
    """A level that can be set."""
    if typed is not None and typed.lower() not in LEVELS:
        raise Usage(f"--log-level is {typed!r}: it must be one of {', '.join(LEVELS)}")
    return typed


def set_up_logging(level: str | None, *, one_of_many: bool = False) -> None:
    """Log from `level` on, by default info. An app that has set up logging itself is left to it, but for a level.

    Where one of many processes writes, each line has its pid.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_handler("[%(process)d]" if one_of_many else ""))
        root.setLevel((level or "info").upper())
    if level is not None:
        logging.getLogger("stepwell").setLevel(level.upper())


class _Cleaning(logging.Formatter):
    """Messages carry what a job's handler said: it must neither steer the terminal nor look like a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record), lines=True).replace("\n", "\n    ")


def _handler(who: str) -> logging.Handler:
    if not sys.stderr.isatty():
        plain = logging.StreamHandler(sys.stderr)
        plain.setFormatter(_Cleaning(f"%(asctime)s %(levelname)s %(name)s{who}: %(message)s"))
        return plain
    from rich.console import Console
    from rich.highlighter import NullHighlighter
    from rich.logging import RichHandler

    coloured = RichHandler(
        console=Console(stderr=True),
        show_path=False,
        markup=False,
        highlighter=NullHighlighter(),
        log_time_format="%X",
    )
    coloured.setFormatter(_Cleaning(f"{who} %(message)s".lstrip()))
    return coloured
