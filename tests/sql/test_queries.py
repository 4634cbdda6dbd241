"""Every query that Python sends is one that the schema understands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from stepwell.calendar.schedule import DueSchedule, NewSchedule
from stepwell.calendar.timing import Interval
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.claims import Position
from stepwell.postgres.queries.fleet import Target
from stepwell.postgres.queries.limits import QueueSettings
from stepwell.postgres.queries.outcomes import Move, Sums
from stepwell.postgres.queries.search import JobMatch
from stepwell.postgres.queries.steps import Saving, Spawning
from stepwell.values.job import NewJob
from stepwell.values.log_line import LogLine
from stepwell.values.step import NewStep, SavedError

_NOW = datetime(2030, 1, 1, tzinfo=UTC)
_ID = "01a1e0af-c50b-7b66-94ec-ea018e1e252e"
_SAMPLES: dict[str, Any] = {
    "most": 5,
    "count": 50,
    "per": 1.0,
    "burst": 50,
    "jobs": [NewJob("t", "{}")],
    "job": NewJob("t", "{}", delay=1.0),
    "worker_id": _ID,
    "request": _ID,
    "requests": [_ID],
    "answers": ["a"],
    "lines": [LogLine(_ID, 1, 0.0, 20, "l", "m")],
    "cut": {_ID: 1},
    "ats": [datetime(2020, 1, 1, tzinfo=UTC)],
    "preview": True,
    "job_id": _ID,
    "group_id": _ID,
    "callback": NewJob("t", "{}", delay=1.0),
    "parameter": "p",
    "ids": [_ID],
    "before": _ID,
    "decode": str,
    "epoch": 1,
    "epochs": [1],
    "queues": ["q"],
    "positions": [Position()],
    "patterns": ["q", "q.*"],
    "tasks": ["t"],
    "limit": 1,
    "raises": True,
    "results": ["1"],
    "keeps": [1.0],
    "states": ["succeeded"],
    "errors": [None],
    "reasons": ["error"],
    "types": ["T"],
    "messages": ["m"],
    "tracebacks": [None],
    "delays": [0.0],
    "max_attempts": [1],
    "progress": ["{}"],
    "mark": "m",
    "marks": [1],
    "host": "h",
    "pid": 1,
    "pids": [1],
    "at": _NOW,
    "version": "v",
    "concurrency": 1,
    "lease": 1.0,
    "running": 0,
    "channel": "c",
    "payload": "p",
    "reason": None,
    "queue": "q",
    "which": JobMatch(("failed",), "q", "t", 1.0, 2.0, "{}", UUID(_ID), "o", "e"),
    "seconds": 1.0,
    "target": Target(queue="q"),
    "owner": "o",
    "name": "n",
    "names": ["n"],
    "old_names": ["o"],
    "without": [_ID],
    "schedule_id": _ID,
    "schedules": [NewSchedule("n", "t", "{}", "q", 0, Interval(60.0), "skip", 1, 0.0)],
    "nexts": [_NOW],
    "next_at": _NOW,
    "due": [DueSchedule(_ID, "n", 1, None, None, 60.0, 1, _NOW, 0.0, _NOW)],
    "ticks": [[_NOW]],
    "declared": True,
    "after": None,
    "wrong": [DueSchedule(_ID, "n", 1, None, None, 60.0, 1, _NOW, 0.0, _NOW)],
    "sums": [Sums("t", "q")],
    "savings": [Saving(_ID, 1, [NewStep("k", 1, "step", "1", SavedError("T", "m"), 1, 0.1, True, True)])],
    "children": [Spawning(_ID, 1, NewStep("k", 1, "child"), NewJob("t", "{}"))],
    "moves": [Move(_ID, 1, None, "c", "1", 2, 0.5, "q")],
    "wait": '{"steps": [], "groups": []}',
    "waits": ['{"steps": [], "groups": [], "at_once": true}'],
    "args": ["{}"],
    "parent_ids": [_ID],
    "failed_steps": ["k"],
    "key": "k",
    "keys": ["k"],
    "step": None,
    "value": "1",
    "keep": 1.0,
    "signatures": [1],
    "graces": [1.0],
    "size": 65536,
    "began": True,
    "role": "r",
    "kinds": ["producer"],
    "job_ids": [_ID],
    "with_family": True,
    "task": "t",
    "settings": None,
    "query": queries.claims.still_held(_ID, 1),
}
_BY_NAME: dict[str, dict[str, Any]] = {
    "backfill_schedule": {"version": 1},
    "fork": {"step": "k"},
    "move": {"priority": 3, "run_at": None},
    "preview": {"act": "retry", "which": {}},
    "start": {"act": "retry", "which": {}, "options": {}, "expected": 1, "asked_by": "ada"},
    "stop_bulk": {"bulk_id": str(UUID(int=1))},
    "register_worker": {"tasks": "{}"},
    "resume_schedule": {"version": 1},
    "prune_rows": {"table": "large_value"},
    "set_queue": {"settings": QueueSettings(5, 50, keep=1.0, paused=False, remove=("keep_failed",))},
    "repeatable_query": {"text": "select 1"},
    "acts": {"who": "ada", "act": "pause", "before": 7},
    "list_failures": {"state": "open", "sort": "last", "task": "t"},
    "save_view": {"name": "late", "filters": {"state": "failed"}, "by": "ada"},
    "set_failures": {"failures": [UUID(_ID)], "state": "open"},
}


def _calls() -> dict[str, Callable[..., Query[Any]]]:
    return {
        name: call
        for _, module in inspect.getmembers(queries, inspect.ismodule)
        for name, call in inspect.getmembers(module, inspect.isfunction)
        if call.__module__ == module.__name__ and _makes_query(call)
    }


def _makes_query(call: Callable[..., Any]) -> bool:
    return str(call.__annotations__.get("return")).startswith("Query[")


@pytest.mark.parametrize("name", sorted(_calls()))
def test_the_schema_understands(conn: psycopg.Connection[Any], name: str) -> None:
    call = _calls()[name]
    wanted = [p.name for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    samples = {**_SAMPLES, **_BY_NAME.get(name, {})}
    missing = [parameter for parameter in wanted if parameter not in samples]
    assert not missing, f"give a sample for {missing}"
    query = call(**{parameter: samples[parameter] for parameter in wanted})
    # Not run, but parsed, planned and checked for names and types.
    conn.execute(f"explain {query.text}", query.params)
