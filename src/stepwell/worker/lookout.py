"""Look where jobs are ready of which nobody told this worker.

Notifications say where jobs become ready. The lookout stands behind them: it looks when the worker starts or was deaf
to them, and now and then for those that were lost. It has a connection of its own, because it walks over all dead rows
in front of a queue, which takes long while somebody holds an old snapshot.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from stepwell import queries
from stepwell.queries import FirstReady
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty import Duties

_POLL_IF_DEAF = 0.2
# A look takes at most this part of the time, however many rows it walks over.
_SHARE = 0.05


class Lookout:
    """Looks every `poll` seconds, sooner when asked, and often while notifications do not arrive."""

    def __init__(
        self,
        duties: Duties,
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
        self._alarm = Alarm()
        self._deaf = False

    def look(self) -> None:
        """Look now: something may be ready anywhere."""
        self._alarm.ring_in(0)

    def hurry(self, deaf: bool) -> None:
        """Look more often, because nobody can tell us, or as usual."""
        self._deaf = deaf
        self.look()

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            worker_id = self._worker_id()
            if worker_id is not None:
                query = queries.first_ready(worker_id, self._patterns, self._tasks)
                for place in await self._duties.do("looking for ready jobs", query) or []:
                    self._found(place)
            poll = min(_POLL_IF_DEAF, self._poll) if self._deaf else self._poll
            nap = max(poll, (loop.time() - began) / _SHARE) * random.uniform(0.8, 1.2)  # noqa: S311
            await self._alarm.nap(nap)
