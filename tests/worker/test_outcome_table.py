"""Every outcome has a row that says how it is written, counted and announced."""

from __future__ import annotations

from typing import get_args

import pytest

from stepwell import App
from stepwell.telemetry.bus import EventBus, JobEvent, Telemetry
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import (
    Advanced,
    Cancelled,
    Failed,
    HandedBack,
    Misfit,
    NothingToWrite,
    Outcome,
    Restarted,
    Snoozed,
    Succeeded,
    Suspended,
    Undone,
)
from stepwell.worker.outcomes.outcome_table import TABLE, EndedRun, announce, size_of

_FAILED = Failed("error", "ValueError", "no", None, None, attempt=2)
_OUTCOMES: list[Outcome] = [
    Succeeded("1"), _FAILED, Misfit(_FAILED), Snoozed(1.0), HandedBack(), Cancelled("no"), Suspended("{}"),
    Advanced(None, "next", "1", 1, None, None), Restarted("{}"), Undone(),
]  # fmt: skip


def _ended(app: App, outcome: Outcome) -> EndedRun[Outcome]:
    async def work() -> None: ...

    job = ClaimedJob("01a1e996-041f-7b9a-a5f1-7dda5fd7b2c8", "mail", "work", "{}", None, 1, 2, 0, 0)
    return EndedRun(job, app.task(name="work")(work), outcome, 2, 0.5)


def test_every_outcome_but_the_written_one_has_a_row_and_an_event_of_its_own() -> None:
    assert set(TABLE) == set(get_args(Outcome)) - {NothingToWrite} == {type(outcome) for outcome in _OUTCOMES}
    assert len({row.event for row in TABLE.values()}) == len(TABLE)


@pytest.mark.parametrize("outcome", _OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_is_announced_with_job_task_queue_and_attempt(dsn: str, outcome: Outcome) -> None:
    heard: list[Telemetry] = []
    events = EventBus()
    events.subscribe(heard.append)
    ended = _ended(App(dsn), outcome)
    announce(ended, events)
    [event] = heard
    assert isinstance(event, JobEvent)
    assert type(event) is TABLE[type(outcome)].event
    assert (event.job_id, event.task, event.queue, event.attempt) == (ended.job.id, "work", "mail", 2)
    assert f"work {ended.job.id}" in event.text()


@pytest.mark.parametrize("outcome", _OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_has_a_statement_and_a_size(dsn: str, outcome: Outcome) -> None:
    ended = _ended(App(dsn), outcome)
    assert "stepwell." in TABLE[type(outcome)].write([ended], 0.5).text
    assert size_of(ended) >= 0
