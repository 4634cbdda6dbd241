"""The demo runs, ends by itself and leaves nothing running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"


def test_the_demo_enqueues_and_finishes_jobs(open_dir: Path) -> None:
    run = subprocess.run(
        [sys.executable, DEMO, "--seconds", "1"], cwd=open_dir, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "succeeded" in run.stdout
    assert "jobs were enqueued" in run.stdout
