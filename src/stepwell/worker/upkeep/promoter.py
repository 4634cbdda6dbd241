"""Make due jobs ready at their time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stepwell.postgres import queries
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.jobs import JobBroken
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.upkeep.index_walks import pause_after_walk
from stepwell.worker.upkeep.leadership import Leadership

_SHORTEST_NAP = 0.002
_LOOK_BACK = 60.0


class Promoter:
    """Sleeps until the next job is due, and promotes it. `promoted` is called when jobs became ready."""

    def __init__(
        self, duties: DutyRunner, leadership: Leadership, events: EventBus, promoted: Callable[[], None]
    ) -> None:
        self._duties = duties
        self._leadership = leadership
        self._events = events
        self._promoted = promoted
        self._alarm = Alarm()

    def due_in(self, seconds: float) -> None:
        self._alarm.ring_in(seconds + self._leadership.behind)

    def look(self) -> None:
        """Look now: this worker leads from now on, or notifications stopped or started to arrive."""
        self._alarm.ring_in(0)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        walk_at = 0.0
        while True:
            # Nearly all jobs become due after the last look. The others were enqueued by a long transaction.
            walks = loop.time() >= walk_at
            done = await self._duties.do(
                "promoting due jobs", queries.upkeep.promote(since=None if walks else _LOOK_BACK)
            )
            if done is None:
                await asyncio.sleep(0.5)
                continue
            promoted = done[0]
            # A backlog is promoted batch by batch, by walks without a pause.
            more = promoted.count > 0 and promoted.next_due == 0
            if walks and not more:
                walk_at = loop.time() + pause_after_walk(promoted.walked)
            for index, job_id in enumerate(promoted.failed):
                about = promoted.tasks[index], promoted.queues[index], promoted.attempts[index]
                self._events.emit(JobBroken(str(job_id), *about, promoted.why[index]))
            longest = self._leadership.longest_nap
            nap = longest if walks else min(longest, max(0.0, walk_at - loop.time()))
            if promoted.next_due is not None:
                nap = min(nap, promoted.next_due)
            if promoted.count:
                self._promoted()
            else:
                # Another worker is promoting what is due: do not race it in circles.
                nap = max(nap, _SHORTEST_NAP)
            if nap > 0:
                await self._alarm.nap(nap + self._leadership.behind)
