"""Write what handlers have logged, in batches. Nothing waits for it, and lines that cannot be written are dropped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from stepwell.durable.run_logs import LogBuffer, RunLogHandler
from stepwell.errors.text import error_line_of
from stepwell.postgres import queries
from stepwell.postgres.errors import is_data_error
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import LogLinesLost
from stepwell.values.log_line import LogLine
from stepwell.worker.duty_runner import DutyRunner

_EVERY = 0.25
_MOST_AT_ONCE = 2000
_TRIES = 60
_PAUSE = 1.0
_LAST_PATIENCE = 5.0


class RunLogWriter:
    """The log lines of one worker. From `open` to `close`, the root logger has a handler that collects them: only if
    `wanted`, because some task keeps logs."""

    def __init__(self, duties: DutyRunner, events: EventBus, *, wanted: bool) -> None:
        self._duties = duties
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        self._writing = asyncio.Lock()
        self._buffer = LogBuffer(self._wake)
        self._handler = RunLogHandler(self.sink) if wanted else None

    @property
    def sink(self) -> Callable[[LogLine], None]:
        return self._buffer.add

    def open(self) -> None:
        if self._handler is not None:
            logging.getLogger().addHandler(self._handler)

    def close(self) -> None:
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)

    async def run(self) -> None:
        while True:
            await self._came.wait()
            # More lines follow the first one: write them together.
            await asyncio.sleep(_EVERY)
            # A worker that stops cancels this loop. The lines on their way must not be lost: `finish` waits for them.
            await asyncio.shield(asyncio.ensure_future(self.write()))

    async def write(self) -> None:
        """Write the lines that have come so far."""
        async with self._writing:
            self._came.clear()
            batch = self._buffer.take()
            if batch is None:
                return
            lines, cut = batch.lines, batch.cut
            lost, why = 0, None
            parts = deque(lines[first : first + _MOST_AT_ONCE] for first in range(0, len(lines), _MOST_AT_ONCE))
            while parts:
                part = parts.popleft()
                try:
                    if not await self._put(part, cut):
                        lost += len(part) + sum(map(len, parts))
                        break
                except Exception as error:
                    if not is_data_error(error):
                        raise
                    # Only the lines that are refused are dropped. Halves find them in few statements.
                    if half := len(part) // 2:
                        parts.extendleft((part[half:], part[:half]))
                    else:
                        lost += 1
                        why = error_line_of(error)
            if lost:
                self._events.emit(LogLinesLost(lost, why))

    async def finish(self) -> None:
        """Write the last lines, unless that takes long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.write(), _LAST_PATIENCE)

    async def _put(self, lines: list[LogLine], cut: dict[str, int]) -> bool:
        """Write lines, and take what was cut before them out of `cut`. Raises the error of a line that is refused."""
        jobs = {line.job_id for line in lines}
        own = {job_id: count for job_id, count in cut.items() if job_id in jobs}
        query = queries.logs.write_logs(lines, own)
        for left in reversed(range(_TRIES)):
            if await self._duties.do("writing run logs", query, raises_data_errors=True) is not None:
                for job_id in own:
                    del cut[job_id]
                return True
            if left:
                await asyncio.sleep(_PAUSE)
        return False

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: an abandoned thread still logs
            self._loop.call_soon_threadsafe(self._came.set)
