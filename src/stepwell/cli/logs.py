"""Logging of a worker process: to stderr, in colour on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator
from functools import partial

from stepwell.cli.output import clean
from stepwell.cli.parse import UsageError
from stepwell.durable import log_filter
from stepwell.durable.log_filter import JobLogFilter
from stepwell.logs import JsonFormatter

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def check_level(typed: str | None) -> str | None:
    if typed is not None and typed.lower() not in LEVELS:
        raise UsageError(f"--log-level is {typed!r}: it must be one of {', '.join(LEVELS)}")
    return typed


def check_format(typed: str) -> bool:
    """Whether the format of the log is JSON."""
    if typed not in FORMATS:
        raise UsageError(f"--log-format is {typed!r}: it must be one of {', '.join(FORMATS)}")
    return typed == "json"


def set_up_logging(level: str | None, *, one_of_many: bool = False, as_json: bool = False) -> None:
    """Log from `level` on, by default info; with the pid in each line if this is `one_of_many` processes. An app that
    has configured logging keeps its handlers and levels, but a given `level` always applies to the logger `stepwell`,
    and `as_json` to handlers that write to stdout or stderr."""
    log_filter.set_up_in_processes = partial(set_up_logging, level, one_of_many=True, as_json=as_json)
    root, ours = logging.getLogger(), logging.getLogger("stepwell")
    # By default dictConfig and fileConfig disable every logger that they do not name.
    ours.disabled = False
    who = "[%(process)d]" if one_of_many else ""
    if not root.handlers:
        root.addHandler(_json_handler() if as_json else _handler(who))
        root.setLevel((level or "info").upper())
    if level is not None:
        ours.setLevel(level.upper())
        lowest = min((handler.level for handler in _handlers(ours)), default=math.inf)
        if lowest > ours.level:
            # The app's handlers drop records of this level. They keep their levels; our handler adds those records.
            handler = _json_handler() if as_json else _handler(who)
            handler.addFilter(lambda record: record.levelno < lowest)
            ours.addHandler(handler)
    for handler in _handlers(ours):
        if as_json and getattr(handler, "stream", None) in (sys.stdout, sys.stderr):
            handler.setFormatter(JsonFormatter())
        if not any(isinstance(known, JobLogFilter) for known in handler.filters):
            handler.addFilter(JobLogFilter())


def _handlers(logger: logging.Logger | None) -> Iterator[logging.Handler]:
    while logger is not None:
        yield from [handler for handler in logger.handlers if not isinstance(handler, logging.NullHandler)]
        logger = logger.parent if logger.propagate else None


class _Formatter(logging.Formatter):
    """Names the job that logged a record. A message may hold text from a handler, which must not control the terminal
    or look like a log line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record), lines=True).replace("\n", "\n    ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        job_id = getattr(record, "job_id", None)
        if job_id is None or hasattr(record, "event"):  # the worker's own messages already name the job
            return super().formatMessage(record)
        about = f"[{getattr(record, 'task', None)} {job_id} attempt {getattr(record, 'attempt', None)}]"
        return super().formatMessage(logging.makeLogRecord({**record.__dict__, "message": f"{about} {record.message}"}))


def _json_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    return handler


def _handler(who: str) -> logging.Handler:
    if not sys.stderr.isatty():
        plain = logging.StreamHandler(sys.stderr)
        plain.setFormatter(_Formatter(f"%(asctime)s %(levelname)s %(name)s{who}: %(message)s"))
        return plain
    from rich.console import Console
    from rich.highlighter import NullHighlighter
    from rich.logging import RichHandler

    coloured = RichHandler(
        console=Console(stderr=True), show_path=False, markup=False, highlighter=NullHighlighter(), log_time_format="%X"
    )
    coloured.setFormatter(_Formatter(f"{who} %(message)s".lstrip()))
    return coloured
