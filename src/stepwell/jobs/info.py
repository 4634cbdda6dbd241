"""Read everything about one job, with its sealed values opened."""

from __future__ import annotations

from dataclasses import replace

from stepwell.postgres import queries
from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.job import JobInfo
from stepwell.values.sealing import PLAIN, Sealer


def info_of(job_id: str, sealer: Sealer = PLAIN) -> QueryPlan[JobInfo | None]:
    found = yield queries.reads.info(job_id)
    if not found:
        return None
    failures = yield queries.reads.failures(job_id)
    steps = yield queries.reads.steps(job_id)
    shown = tuple(replace(step, value=sealer.shown(step.value)) for step in steps)
    return replace(opened_info(found[0], sealer), failures=tuple(failures), steps=shown)


def opened_info(info: JobInfo, sealer: Sealer) -> JobInfo:
    """The same job with its sealed values opened, as far as this app can."""
    return replace(info, args=sealer.shown_args(info.args), result=sealer.shown(info.result))
