"""Compare what stands in the database with what the oracle says, tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from .oracle import Oracle

# By the test's clock, which is nudged a little while it waits.
_LATEST = timedelta(seconds=13)
_SHOWN = 3
_RUNS = """
select t.name, t.at, t.handled_at, j.id, j.state::text, j.queue, j.args, j.result, j.scheduled_for, j.enqueued_at,
  j.run_at, j.epoch > 1 or exists (select from stepwell.failures f where f.job_id = j.id) as was_lost
from stepwell.ticks t
join stepwell.jobs j on j.id = t.job_id and j.schedule_id = t.schedule_id
order by t.name, t.at
"""


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    at: datetime
    handled_at: datetime
    id: UUID
    state: str
    queue: str
    args: Any
    result: Any
    scheduled_for: datetime
    enqueued_at: datetime
    run_at: datetime
    was_lost: bool


def audit_ticks(conn: psycopg.Connection[Any], oracle: Oracle) -> None:
    """Each schedule has the ticks it must have and no others, seen to when they must be."""
    rows = conn.execute(
        "select name, at, handled_at, skipped, triggered, job_id is not null from stepwell.ticks order by name, at"
    ).fetchall()
    assert {row[0] for row in rows} <= set(oracle.names)
    for name in oracle.names:
        found = [
            (_utc(at), skipped, triggered, has_run) for its, at, _, skipped, triggered, has_run in rows if its == name
        ]
        ticks = oracle.ticks(name)
        _compare(name, found, [(tick.at, tick.skipped, tick.triggered, tick.fate is not None) for tick in ticks])
        for (_, at, seen_at, *_), tick in zip([row for row in rows if row[0] == name], ticks, strict=True):
            assert at <= seen_at, f"{name}: the tick at {at} was seen to at {seen_at}, before its time"
            assert tick.seen_at <= seen_at <= tick.seen_at + _LATEST, (
                f"{name}: the tick at {at} was seen to at {seen_at}, and not at {tick.seen_at}"
            )


def audit_runs(conn: psycopg.Connection[Any], oracle: Oracle) -> None:
    """Each tick that has a run has one, which ended as it must; and there is no other."""
    runs = conn.cursor(row_factory=class_row(_Run)).execute(_RUNS).fetchall()
    for name in oracle.names:
        its = [run for run in runs if run.name == name]
        expected = [(tick.at, tick.fate) for tick in oracle.ticks(name) if tick.fate]
        _compare(name, [(_utc(run.at), run.state) for run in its], expected)
        rule = oracle.rule(name)
        for run in its:
            assert (run.scheduled_for, run.enqueued_at) == (run.at, run.handled_at), run
            assert (run.queue, run.args) == (rule.queue, {"name": name}), run
            # One whose worker died may run again at once, whenever that was.
            assert run.was_lost or run.at <= run.run_at <= run.at + timedelta(seconds=rule.jitter), run
            said = run.result and (run.result[0], datetime.fromisoformat(run.result[1]))
            assert said == ((name, run.at) if run.state == "succeeded" else None), run
    assert len({run.id for run in runs}) == len(runs), "two ticks have the same run"
    unexplained = conn.execute(
        "select j.id, j.scheduled_for, j.state, j.args from stepwell.jobs j"
        " where not exists (select from stepwell.ticks t where t.job_id = j.id)"
    ).fetchall()
    assert unexplained == [], f"no tick explains {unexplained}"


def audit_nexts(conn: psycopg.Connection[Any], oracle: Oracle, end: datetime) -> None:
    """Each schedule is due next when it must be, or later than the oracle looks."""
    for name, next_at in conn.execute("select name, next_run_at from stepwell.schedules").fetchall():
        due = oracle.due(name)
        assert next_at == due or (due is None and next_at > end), f"{name} is due at {next_at}, not at {due}"


def _compare(name: str, found: Sequence[tuple[Any, ...]], expected: Sequence[tuple[Any, ...]]) -> None:
    """With thousands of ticks, what matters is the first that differs, and its neighbours."""
    if found == expected:
        return
    place = next((k for k, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other), None)
    place = min(len(found), len(expected)) if place is None else place
    near = slice(max(0, place - _SHOWN), place + _SHOWN + 1)
    told = [f"{title}: {_lines(rows[near])}" for title, rows in (("found", found), ("the oracle", expected))]
    raise AssertionError(f"schedule {name!r} differs at its tick {place}\n" + "\n".join(told))


def _lines(rows: Sequence[tuple[Any, ...]]) -> str:
    return "".join(f"\n  {at:%a %H:%M:%S} {' '.join(map(str, rest))}" for at, *rest in rows)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)
