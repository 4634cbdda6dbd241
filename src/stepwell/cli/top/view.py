"""What `stepwell top` reads: the same functions as the dashboard, each with a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.job import FINISHED, LIVE, State
from stepwell.web.reads import fleet, jobs
from stepwell.web.reads.pulse import pulse
from stepwell.web.wording import to_time

TABS = ("queues", "jobs", "workers", "failures", "tasks")
STATES: tuple[State, ...] = ("running", *(state for state in (*LIVE, *FINISHED) if state != "running"))
"""The states in which jobs are listed, in the order in which the key goes through them."""
MOST_JOBS = 200
_MOST_QUEUES = 500
_MOST_FAILURES = 50
_RANGE = "1h"
_PATIENCE = 150
# Workers write their counters every ten seconds.
_SHORTEST = 10.0
_RATE_OVER = 30.0

Record = dict[str, Any]


@dataclass(slots=True)
class View:
    """The fleet at one time. Tabs that were not read are empty."""

    now: datetime
    read_only: bool
    overview: Record
    rows: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])
    """By tab, as the dashboard's functions return them."""
    more: set[str] = field(default_factory=set[str])
    """Tabs of which only the first rows were read."""
    state: State = "running"
    """The state of the jobs in their tab."""
    before: View | None = None
    """What was read some seconds ago, to compute the rate from."""

    @property
    def paused(self) -> bool:
        """Whether everything is paused."""
        return self.overview["queues"]["everything_paused_at"] is not None

    @property
    def minutes(self) -> list[int]:
        """How many runs ended in each of the last 60 minutes, the oldest first. The last minute has only begun."""
        found = [0] * 60
        for minute, number in _ended(self.overview).items():
            at = to_time(minute)
            ago = 60 if at is None else max(int((self.now - at).total_seconds() // 60), 0)
            if ago < 60:
                found[59 - ago] += number
        return found

    @property
    def rate(self) -> float:
        """How many runs ended per second: since `before`, or in this minute and the one before."""
        passed = 0.0 if self.before is None else (self.now - self.before.now).total_seconds()
        if self.before is None or passed < _SHORTEST:
            return sum(self.minutes[-2:]) / (60 + self.now.second)
        then = _ended(self.before.overview)
        return sum(max(number - then.get(at, 0), 0) for at, number in _ended(self.overview).items()) / passed


class RecentViews:
    """The views of the last half minute, to compute the rate from."""

    def __init__(self) -> None:
        self._views: deque[tuple[float, View]] = deque()

    def __len__(self) -> int:
        return len(self._views)

    def add(self, view: View, read_at: float) -> None:
        """Add a view that was read at this time of the process. The clock of the database may be set back, or stand
        still."""
        self._views.append((read_at, view))
        while not (
            0 <= (view.now - self._views[0][1].now).total_seconds() <= _RATE_OVER
            and read_at - self._views[0][0] <= _RATE_OVER
        ):
            self._views.popleft()
        first = self._views[0][1]
        view.before = None if first is view else first


def _ended(overview: Record) -> dict[str, int]:
    """How many runs ended in each minute."""
    return {point["at"]: point["ended"] for point in overview["chart"]["found"]}


def _with_runs(row: Record) -> Record:
    """A queue or task with its `runs` of the last hour: how they ended, how many seconds they took, and a chart of
    them in twelve parts."""
    stats: Record = row["stats"] or {}
    chart = [0] * 12
    for place, good, bad in stats.get("points", ()):
        chart[min(max(place, 0), 11)] += good + bad
    runs = {name: stats.get(name, 0) for name in ("succeeded", "failed", "cancelled", "ended", "seconds")}
    return {**row, "runs": {**runs, "chart": chart}}


def read_view(tabs: Collection[str] = TABS, state: State = "running") -> QueryPlan[View]:
    """Read the overview, and the rows of these tabs."""
    [beat] = yield pulse()
    [overview] = yield fleet.overview(_RANGE)
    view = View(to_time(beat["now"]) or datetime.now().astimezone(), beat["read_only"], overview, state=state)
    if "queues" in tabs:
        [found] = yield fleet.queues(_RANGE, limit=_MOST_QUEUES)
        view.rows["queues"] = [_with_runs(queue) for queue in found["queues"]]
        if found["next"]:
            view.more.add("queues")
    if "jobs" in tabs:
        oldest_first = state in LIVE
        [found] = yield jobs.search(jobs.Search(state=state), None, MOST_JOBS, _PATIENCE, oldest_first=oldest_first)
        view.rows["jobs"] = found["jobs"]
        if found["looked_to"]:
            view.more.add("jobs")
    if "workers" in tabs:
        [found] = yield fleet.workers()
        view.rows["workers"] = found["workers"]
        if found["next"]:
            view.more.add("workers")
    if "failures" in tabs:
        [found] = yield fleet.failures("open", None, "last", None, _MOST_FAILURES)
        view.rows["failures"] = found["groups"]
        if found["next"]:
            view.more.add("failures")
    if "tasks" in tabs:
        [found] = yield fleet.tasks(_RANGE)
        view.rows["tasks"] = [_with_runs(task) for task in found["tasks"]]
        if found["next"]:
            view.more.add("tasks")
    return view
