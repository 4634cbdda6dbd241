"""Read the names of queues, tasks and owners in use, to tell a mistyped name from one without jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.postgres.queries.query import Query

NameKind = Literal["queue", "task", "owner"]

# How many of the newest jobs are read. A name that only older jobs have, and no worker, schedule or counter, is not
# found: a search for a name that no job has would read all jobs.
_NEWEST = 10_000


@dataclass(frozen=True, slots=True)
class KnownName:
    """A name in use. `served`: a worker has run its jobs, or would; False: its jobs wait."""

    kind: NameKind
    name: str
    served: bool


def known_names(queue: str | None) -> Query[KnownName]:
    """Read the names of live workers, schedules, counters and the newest jobs; and this queue, if it has ready jobs. A
    queue that ends with * is a worker's pattern, which matches every queue with that prefix."""
    return Query(
        "with newest as materialized ("
        "select j.queue, j.task, j.owner, j.claimed_at is not null as claimed from stepwell.jobs j"
        " order by j.id desc limit %s::integer),"
        " counted as materialized ("
        "select s.queue, s.task from stepwell.stats s order by s.minute desc limit %s::integer)"
        " select n.kind, n.name, bool_or(n.served) from ("
        "select 'queue' as kind, unnest(w.queues) as name, true as served from stepwell.workers w where w.alive"
        " union all select 'task', unnest(w.tasks), true from stepwell.workers w where w.alive"
        " union all select 'owner', w.owner, true from stepwell.workers w where w.alive and w.named is not false"
        " union all select u.kind, u.name, true from stepwell.schedules s"
        " cross join lateral (values ('queue', s.queue), ('task', s.task), ('owner', s.owner)) as u (kind, name)"
        " union all select u.kind, u.name, true from counted c"
        " cross join lateral (values ('queue', c.queue), ('task', c.task)) as u (kind, name)"
        " union all select u.kind, u.name, n.claimed from newest n"
        " cross join lateral (values ('queue', n.queue), ('task', n.task), ('owner', n.owner)) as u (kind, name)"
        " union all (select 'queue', j.queue, false from stepwell.jobs j"
        " where j.state = 'ready'::stepwell.state and j.queue = %s::text limit 1)"
        ") n where n.name is not null group by n.kind, n.name",
        (_NEWEST, _NEWEST, queue),
        KnownName,
        repeatable=True,
    )
