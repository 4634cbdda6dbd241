"""What needs a person, as sentences: for the first page of the dashboard, and for `stepwell top`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.web.wording import between, length

_LATE = 300.0
_MANY_FAILED = 0.05


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs a person: a sentence, and the page about it."""

    level: Literal["problem", "warning"]
    text: str
    path: str
    query: dict[str, str] = field(default_factory=dict[str, str])


def notices(overview: dict[str, Any], now: Any) -> Iterator[Notice]:
    """Read them from what fleet.overview returns."""
    workers, backlog = overview["workers"], overview["backlog"]
    waits = overview["states"]["ready"] > 0
    if not workers["alive"] and (waits or workers["all"]):
        text = "No worker is alive." if not waits else "Jobs are ready, and no worker is alive."
        yield Notice("problem", text, "/workers")
    elif workers["alive"] < workers["all"]:
        dead = workers["all"] - workers["alive"]
        yield Notice("warning", f"{dead} of {workers['all']} workers no longer renew their lease.", "/workers")
    if overview["queues"]["everything_paused_at"]:
        yield Notice("problem", "Everything is paused: no worker claims a job.", "/queues")
    for queue in backlog["unclaimed"] if workers["alive"] else ():
        text = f"No live worker claims from queue {queue}, which has ready jobs."
        yield Notice("problem", text, "/queues", {"name": queue})
    for queue in backlog["paused"]:
        yield Notice("warning", f"Queue {queue} is paused, and jobs are ready in it.", "/queues", {"name": queue})
    oldest = backlog["late"]
    late = 0.0 if oldest is None else between(oldest["at"], now) or 0.0
    if oldest and late > _LATE:
        text = f"The oldest ready job, in queue {oldest['queue']}, has waited for {length(late)}."
        yield Notice("warning", text, "/jobs", {"state": "ready", "queue": oldest["queue"], "sort": "oldest"})
    sums = overview["last_hour"]
    runs = sums["succeeded"] + sums["failed"]
    if runs >= 20 and sums["failed"] > _MANY_FAILED * runs:
        text = f"{100 * sums['failed'] / runs:.0f}% of the runs of the last hour failed."
        yield Notice("warning", text, "/failures")
    if overview["default_rows"]:
        text = "Finished jobs are in the default partition: no worker has made partitions ahead."
        yield Notice("warning", text, "/database")
