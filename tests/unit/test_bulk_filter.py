"""A filter that a bulk operation forgets would change all other jobs, too."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from stepwell.jobs.bulk import cancelling
from stepwell.jobs.bulk_operation import start_bulk
from stepwell.postgres.queries.search import JobMatch
from stepwell.web.reads.bulk import filter_of
from stepwell.web.reads.jobs import Search

SAMPLES: dict[str, Any] = {
    "states": ("failed",),
    "older_than": 60.0,
    "newer_than": 60.0,
    "metadata": '{"a": 1}',
    "worker_id": uuid4(),
    "worker": uuid4(),
    "group_id": uuid4(),
    "failure": uuid4(),
    "after": datetime.now(UTC),
    "until": datetime.now(UTC),
}


@pytest.mark.parametrize("name", [field.name for field in fields(JobMatch)])
def test_a_bulk_operation_has_every_filter_of_a_match(name: str) -> None:
    plan = start_bulk(cancelling(None), JobMatch(**{name: SAMPLES.get(name, "x")}), "ada")
    next(plan)
    assert plan.send([datetime.now(UTC)]).params[1] != "{}"


@pytest.mark.parametrize("name", [field.name for field in fields(Search)])
def test_a_bulk_operation_has_every_filter_of_the_page(name: str) -> None:
    assert filter_of(Search(**{name: SAMPLES.get(name, "x")}))
