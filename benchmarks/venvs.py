"""A virtual environment for each system, made from the versions in its `requirements.txt`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.system import SYSTEMS, System

_VENVS = Path(__file__).parent / ".venvs"


def names() -> list[str]:
    """All systems but Stepwell itself."""
    return sorted(path.parent.name for path in SYSTEMS.glob("*/requirements.txt"))


def system(name: str) -> System:
    """The system, with its environment made if it is not there. Raises if it cannot be installed."""
    requirements = (SYSTEMS / name / "requirements.txt").read_text()
    venv = _VENVS / f"{name}-{hashlib.sha256(requirements.encode()).hexdigest()[:8]}"
    python = venv / "bin" / "python"
    if not (venv / ".ready").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        wanted = ["-r", str(SYSTEMS / name / "requirements.txt")]
        done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"does not install: {done.stderr.strip().splitlines()[-1]}")
        (venv / ".ready").touch()
    return System(name, python)
