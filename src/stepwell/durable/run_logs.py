"""Keep what handlers log: a logging handler that puts the records of runs into a buffer, from which they are written.

It only fills the buffer. It never waits, and no error of it reaches the code that logs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from stepwell.durable.log_filter import LoggedRun, current_run
from stepwell.errors.text import storable
from stepwell.values.log_line import LogBatch, LogLine

LONGEST = 4000
"""Characters of a message that are kept."""
MOST_LINES = 1000
"""Lines of a job that are kept: the newest."""
_MOST_BUFFERED = 16 * 1024 * 1024
_LONGEST_NAME = 200
_HIGHEST_LEVEL = 1000
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
_DAY = 86400.0
_OURS = "stepwell"


class LogBuffer:
    """Lines that are not written yet. Any thread may add some. A job that logs much loses its oldest lines, of which no
    more are kept anyway. When the lines of all jobs take too much memory, new ones are dropped and counted.

    `woken` is called with the first line after a `take`, in the thread that logs.
    """

    def __init__(self, woken: Callable[[], None], most: int = _MOST_BUFFERED) -> None:
        self._woken = woken
        self._most = most
        self._gate = threading.Lock()
        self._lines: dict[str, deque[LogLine]] = {}
        self._cut: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._size = 0

    def add(self, line: LogLine) -> None:
        with self._gate:
            first = not self._lines and not self._dropped
            if self._size + line.size > self._most:
                self._dropped[line.job_id] = self._dropped.get(line.job_id, 0) + 1
            else:
                lines = self._lines.setdefault(line.job_id, deque())
                lines.append(line)
                self._size += line.size
                if len(lines) > MOST_LINES:
                    self._size -= lines.popleft().size
                    self._cut[line.job_id] = self._cut.get(line.job_id, 0) + 1
        if first:
            self._woken()

    def take(self) -> LogBatch | None:
        """Take all lines out. A line says how many were dropped. None: there are none."""
        with self._gate:
            lines, cut, dropped = self._lines, self._cut, self._dropped
            self._lines, self._cut, self._dropped, self._size = {}, {}, {}, 0
        found = [line for of_job in lines.values() for line in of_job]
        now = datetime.now(UTC).timestamp()
        for job_id, count in dropped.items():
            last = lines[job_id][-1] if lines.get(job_id) else None
            said = f"{count} lines were dropped here: the worker's buffer of log lines was full"
            found.append(LogLine(job_id, last.attempt if last else 0, now, logging.WARNING, _OURS, said))
        return LogBatch(found, cut) if found else None


class RunLogHandler(logging.Handler):
    """Hands each record that is made in a run to the sink of that run, if that is this one: the root logger has a
    handler for each worker in the process. The records of Stepwell itself are not the handler's."""

    def __init__(self, sink: Callable[[LogLine], None]) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._keep(record)
        except Exception:
            self._complain(record)
        try:
            self._leave(record)
        except Exception:
            self._complain(record)

    def _keep(self, record: logging.LogRecord) -> None:
        run = current_run()
        # Not `is`: each look at a bound method makes a new one.
        if not isinstance(run, LoggedRun) or run.sink != self._sink:
            return
        job_id, _, _, attempt = run.fields()
        name = storable(str(record.name)[:_LONGEST_NAME])[:_LONGEST_NAME]
        if job_id is not None and name != _OURS and not name.startswith("stepwell."):
            # Code may make a record with any values. One that Postgres refuses would be in the way of all others.
            at, level = _time(record.created), _level(record.levelno)
            self._sink(LogLine(job_id, attempt or 0, at, level, name, _text(record)))

    def _complain(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self.handleError(record)

    def _leave(self, record: logging.LogRecord) -> None:
        """Have Python print the record once, as it would without such handlers, if no other handler gets it."""
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_only(record.name):
            last.handle(record)

    def _is_only(self, name: str) -> bool:
        others = logging.root.handlers
        if others[:1] != [self] or not all(isinstance(handler, RunLogHandler) for handler in others):
            return False
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None and logger is not logging.root:
            if logger.handlers:
                return False
            logger = logger.parent if logger.propagate else None
        return True


_formatter = logging.Formatter()


def _text(record: logging.LogRecord) -> str:
    """The message with its traceback, as the standard formatter writes it, cut."""
    text = record.getMessage()
    if record.exc_info:
        trace = _formatter.formatException(record.exc_info)
        # The end of a traceback says most.
        room = max(LONGEST - len(text) - 1, 500)
        text = f"{text[: LONGEST - 500]}\n{trace[-room:]}"
    if record.stack_info:
        text = f"{text}\n{record.stack_info}"
    # First cut, because the text may be of any length, and cut again, because an escape is longer than its character.
    text = storable(text[: LONGEST + 1])
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _level(given: object) -> int:
    try:
        return min(max(int(cast("Any", given)), 0), _HIGHEST_LEVEL)
    except (TypeError, ValueError, OverflowError):
        return 0


def _time(given: object) -> float:
    """When the record was made; now, if it does not say so in seconds since 1970."""
    now = time.time()
    return float(given) if isinstance(given, int | float) and _EARLIEST <= given <= now + _DAY else now
