"""Log records as JSON, one object per line."""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Any, cast

from stepwell.durable.log_filter import JobLogFilter

_JOB = ("job_id", "task", "queue", "attempt")
# The attributes that every record has; `message` and `asctime` are added by formatters.
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", *_JOB}
_MOST_TEXT = 100_000
_DEEPEST = 8


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, process and thread; `job_id`, `task`, `queue`
    and `attempt` if a handler logged it or it is about a job; `event` and `fields` of Stepwell's own records; `extra`
    for all else that was given by `extra=`; and `exception`."""

    def __init__(self) -> None:
        super().__init__()
        self._filter = JobLogFilter()

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. It never fails, whatever the record has."""
        # A no-op where the handler has the filter, as it must have behind a queue.
        self._filter.filter(record)
        known = record.__dict__
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            "process": record.process,
            "thread": record.threadName,
        }
        entry.update({name: known[name] for name in _JOB if known.get(name) is not None})
        extra = {name: value for name, value in known.items() if name not in _OWN}
        if "event" in extra and "fields" in extra:
            entry["event"], entry["fields"] = extra.pop("event"), extra.pop("fields")
        if extra:
            entry["extra"] = extra
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = {
                "type": record.exc_info[0].__qualname__,
                "message": _text(record.exc_info[1]),
                "traceback": record.exc_text or self.formatException(record.exc_info),
            }
        elif record.exc_text:
            entry["exception"] = {"traceback": record.exc_text}
        if record.stack_info:
            entry["stack"] = record.stack_info
        return json.dumps(_plain(entry, 0), ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit the text
        return f"{record.msg} {_text(record.args)}"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    """The value as JSON has it. What JSON does not have becomes text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}..."
    if depth < _DEEPEST:
        if isinstance(value, dict):
            members = cast("dict[Any, Any]", value)
            return {_text(name): _plain(member, depth + 1) for name, member in members.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, depth + 1) for item in cast("list[Any]", value)]
    return _text(value)[:_MOST_TEXT]
