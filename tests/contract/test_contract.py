"""The programs that say what the API is, run as written, each in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import run_forked

HERE = Path(__file__).parent
PROGRAMS = sorted(str(program.relative_to(HERE)) for program in HERE.glob("programs/*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_written(name: str, project_dir: Path) -> None:
    program = project_dir / Path(name).name
    program.write_bytes((HERE / name).read_bytes())
    run = run_forked([program.name], project_dir, timeout=90)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "ok"
