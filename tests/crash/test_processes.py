"""Handlers in processes of their own: they do not outlive a worker that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from .audit import audit, enqueue, left, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


def runs(pid: int) -> bool:
    """Whether a process is there and is more than a zombie that nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_processes_of_a_killed_worker_die_and_their_jobs_are_run_elsewhere(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    victim = fleet.start(concurrency=2)
    enqueue(witness, "held_process", 2, until=2)
    until(lambda: started(witness, 1) == 2, "both are running")
    children = [row[0] for row in witness.execute("select pid from crash.ledger")]
    assert victim.pid not in children
    assert all(runs(child) for child in children)
    fleet.start(concurrency=2)
    victim.kill()
    until(lambda: not any(runs(child) for child in children), "the orphans are gone")
    until(lambda: not left(witness), "all jobs are done")
    audit(witness, failures={"lease_lost"})
