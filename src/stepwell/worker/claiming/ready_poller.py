"""Find ready jobs that no notification announced.

Notifications say where jobs become ready. The poller is the fallback: it looks when the worker starts or was deaf to
them, and regularly for notifications that were lost. A look walks each queue from its front, so it counts as a slow
duty, and `index_walks` says how long the next one waits, unless something asks for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from stepwell.postgres import queries
from stepwell.postgres.queries.claims import EntriesRead, FirstReady
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.upkeep.index_walks import pause_after_walk

_POLL_IF_DEAF = 0.2


class ReadyPoller:
    """Looks every `poll` seconds, sooner when asked, and often while notifications do not arrive."""

    def __init__(
        self,
        duties: DutyRunner,
        worker_id: Callable[[], str | None],
        patterns: Sequence[str],
        tasks: Sequence[str],
        poll: float,
        found: Callable[[FirstReady], None],
    ) -> None:
        self._duties = duties
        self._worker_id = worker_id
        self._patterns = patterns
        self._tasks = tasks
        self._poll = poll
        self._found = found
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm()
        self._deaf = False
        self._not_before = 0.0

    def look(self) -> None:
        self._alarm.ring_in(0)

    def promoted(self) -> None:
        """Due jobs became ready. Their notification says where, unless this worker is deaf to it."""
        if self._deaf:
            self._alarm.ring_in(max(0.0, self._not_before - self._loop.time()))

    def dropped(self) -> None:
        """A notification was dropped, among very many. Look soon, but no more often than a deaf worker."""
        self._alarm.ring_in(max(_POLL_IF_DEAF, self._not_before - self._loop.time()))

    def set_deaf(self, deaf: bool) -> None:
        """Look more often, because no notification arrives, or as usual."""
        self._deaf = deaf
        self.look()

    async def run(self) -> None:
        while True:
            pause = 0.0
            worker_id = self._worker_id()
            if worker_id is not None:
                query = queries.claims.first_ready(worker_id, self._patterns, self._tasks)
                found = await self._duties.do("looking for ready jobs", query)
                read = [row.entries for row in found or [] if isinstance(row, EntriesRead)]
                for row in found or []:
                    if isinstance(row, FirstReady):
                        self._found(row)
                pause = pause_after_walk(read[-1] - read[0]) if read else 0.0
            self._not_before = self._loop.time() + pause
            poll = min(_POLL_IF_DEAF, self._poll) if self._deaf else self._poll
            await self._alarm.nap(max(pause, poll * random.uniform(0.8, 1.2)))  # noqa: S311
