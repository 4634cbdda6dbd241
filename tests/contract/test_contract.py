"""The programs that say what the API is, run as written, each from an empty directory, in that directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("name", sorted(program.name for program in PROGRAMS.glob("*.py")))
def test_a_program_runs_as_written(name: str, open_dir: Path) -> None:
    program = open_dir / name
    program.write_bytes((PROGRAMS / name).read_bytes())
    run = subprocess.run([sys.executable, name], cwd=open_dir, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "ok"
