"""The programs that say what the API is, run as written, each from an empty directory, in that directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(str(program.relative_to(HERE)) for program in HERE.glob("programs/*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_written(name: str, open_dir: Path) -> None:
    program = open_dir / Path(name).name
    program.write_bytes((HERE / name).read_bytes())
    run = subprocess.run(
        [sys.executable, program.name], cwd=open_dir, capture_output=True, text=True, timeout=90, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "ok"
