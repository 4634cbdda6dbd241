"""The first page: is it healthy now, and does something need a person?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from stepwell.web.charts import Bars, Lines, bars, lines
from stepwell.web.ranges import chosen, filled
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit
from stepwell.web.wording import between, length

_LATE = 300.0
_MANY_FAILED = 0.05


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs a person: a sentence, and the page about it."""

    level: str
    """problem or warning."""
    text: str
    url: str


async def show(visit: Visit) -> Response:
    span = chosen(visit)
    found = await visit.read(fleet.overview(span.name))
    notices = list(_notices(visit, found, found["last_hour"]))
    chart = filled(found["chart"])
    data = {
        **found,
        "chart": chart,
        "oldest_ready": found["backlog"]["oldest"],
        "notices": [{"level": notice.level, "text": notice.text} for notice in notices],
    }
    return visit.page(
        "overview.html",
        data,
        span=span,
        shown_notices=notices,
        throughput=_throughput(chart),
        times=[("Waiting time", "waited", _lines(chart, "waited")), ("Run time", "ran", _lines(chart, "ran"))],
    )


def _throughput(chart: dict[str, Any]) -> Bars:
    # Enqueued jobs are counted up to a minute later than runs, so the newest point of their line would be too low.
    enqueued = [point["enqueued"] for point in chart["points"]]
    hidden = 2 if chart["point_seconds"] == 60 else 1
    ended = [(point["ended"] - point["failed"], point["failed"]) for point in chart["points"]]
    return bars(ended, 600, 72, [*enqueued[:-hidden], *[None] * hidden])


def _lines(chart: dict[str, Any], which: str) -> Lines | None:
    return lines([point[which] for point in chart["points"]], 600, 96)


def _notices(visit: Visit, found: dict[str, Any], sums: dict[str, Any]) -> Iterator[Notice]:
    now = visit.pulse["now"]
    workers, backlog = found["workers"], found["backlog"]
    waits = found["states"]["ready"] > 0
    if not workers["alive"] and (waits or workers["all"]):
        text = "No worker is alive." if not waits else "Jobs are ready, and no worker is alive."
        yield Notice("problem", text, visit.url("/workers"))
    elif workers["alive"] < workers["all"]:
        dead = workers["all"] - workers["alive"]
        yield Notice(
            "warning", f"{dead} of {workers['all']} workers no longer renew their lease.", visit.url("/workers")
        )
    if found["queues"]["everything_paused_at"]:
        yield Notice("problem", "Everything is paused: no worker claims a job.", visit.url("/queues"))
    for queue in backlog["unclaimed"] if workers["alive"] else ():
        text = f"No live worker claims from queue {queue}, which has ready jobs."
        yield Notice("problem", text, visit.url("/queues", name=queue))
    for queue in backlog["paused"]:
        text = f"Queue {queue} is paused, and jobs are ready in it."
        yield Notice("warning", text, visit.url("/queues", name=queue))
    oldest = backlog["late"]
    late = 0.0 if oldest is None else between(oldest["at"], now) or 0.0
    if oldest and late > _LATE:
        text = f"The oldest ready job, in queue {oldest['queue']}, has waited for {length(late)}."
        yield Notice("warning", text, visit.url("/jobs", state="ready", queue=oldest["queue"], sort="oldest"))
    runs = sums["succeeded"] + sums["failed"]
    if runs >= 20 and sums["failed"] > _MANY_FAILED * runs:
        text = f"{100 * sums['failed'] / runs:.0f}% of the runs of the last hour failed."
        yield Notice("warning", text, visit.url("/failures"))
    if found["default_rows"]:
        text = "Finished jobs are in the default partition: no worker has made partitions ahead."
        yield Notice("warning", text, visit.url("/database"))
