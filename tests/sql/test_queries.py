"""Every query that Python sends is one that the schema understands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from stepwell import queries
from stepwell.queries import JobFilter, NewJob, Position, Query

_ID = "01a1e0af-c50b-7b66-94ec-ea018e1e252e"
_SAMPLES: dict[str, Any] = {
    "jobs": [NewJob("t", "{}")],
    "worker_id": _ID,
    "job_id": _ID,
    "ids": [_ID],
    "before": _ID,
    "epoch": 1,
    "epochs": [1],
    "queues": ["q"],
    "positions": [Position()],
    "patterns": ["q", "q.*"],
    "tasks": ["t"],
    "limit": 1,
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
    "host": "h",
    "pid": 1,
    "version": "v",
    "concurrency": 1,
    "lease": 1.0,
    "running": 0,
    "channel": "c",
    "payload": "p",
    "reason": None,
    "queue": "q",
    "which": JobFilter(("failed",), "q", "t", 1.0, 2.0, "{}"),
    "seconds": 1.0,
}
_BY_NAME = {"register_worker": {"tasks": "{}"}}


def _calls() -> dict[str, Callable[..., Query[Any]]]:
    return {name: call for name in queries.__all__ if inspect.isfunction(call := getattr(queries, name))}


@pytest.mark.parametrize("name", sorted(_calls()))
def test_the_schema_understands(conn: psycopg.Connection[Any], name: str) -> None:
    call = _calls()[name]
    wanted = [p.name for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    samples = {**_SAMPLES, **_BY_NAME.get(name, {})}
    missing = [parameter for parameter in wanted if parameter not in samples]
    assert not missing, f"give a sample for {missing}"
    query = call(*[samples[parameter] for parameter in wanted])
    # Not run, but parsed, planned and checked for names and types.
    conn.execute(f"explain {query.text}", query.params)
