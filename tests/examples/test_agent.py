"""The durable agent: it streams, asks for approval, and goes on after a kill."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import JobHandle
from stepwell.testing import crash_sweep

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_agent_streams_its_answer_and_waits_for_an_approval(open_dir: Path) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "agent.py"],
        cwd=open_dir,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "approved" in run.stdout
    assert "there is a flight to d at 9:00" in run.stdout.partition("done: ")[2]
    assert " tokens)" in run.stdout
    assert "(0 tokens)" not in run.stdout


@pytest.mark.slow
def test_the_agent_goes_on_after_a_kill(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_DATABASE_URL", dsn)
    example = importlib.reload(importlib.import_module("examples.agent"))
    example.set_up()

    def tokens(job: JobHandle[Any]) -> list[tuple[int, int]]:
        with psycopg.connect(dsn) as connection:
            found = connection.execute("select turn, n from token where job_id = %s", (str(job.id),))
            return sorted(found.fetchall())

    def approve(job: JobHandle[Any]) -> bool:
        job.send("approval", True)
        return True

    with example.app:
        swept = crash_sweep(
            example.app,
            example.agent.call("to Lisbon"),
            program="examples.agent:app",
            effects=tokens,
            answer=approve,
            sample=3,
            seed=1,
        )
    assert "a seat to d is booked" in str(swept.ending.result)
    # How many writes there are varies with the reports of progress, so a point may not be reached.
    assert swept.killed
