"""The statement by which no-op steps are saved, as a worker would send it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.steps import Saving
from stepwell.values.step import NewStep

_NULL = "null"


def save(ids: list[str], epochs: list[int], n: int) -> Query[tuple[list[UUID], datetime]]:
    """The n-th step of each of these jobs."""
    step = NewStep("nothing" if n == 1 else f"nothing#{n}", n, "step", _NULL, seconds=1e-5)
    return queries.steps.save_steps([Saving(job_id, epoch, [step]) for job_id, epoch in zip(ids, epochs, strict=True)])
