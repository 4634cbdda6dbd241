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
    """All systems that are not Stepwell, with the engine or without."""
    return sorted(path.parent.name for path in SYSTEMS.glob("*/requirements.txt"))


def system(name: str) -> System:
    """The system, in its environment."""
    return System(name, python((SYSTEMS / name / "requirements.txt").read_text().split(), name))


def python(requirements: list[str], name: str) -> Path:
    """The Python of an environment with these in it, made if it is not there. Raises if they cannot be installed."""
    venv = _VENVS / f"{name}-{hashlib.sha256(' '.join(requirements).encode()).hexdigest()[:8]}"
    found = venv / "bin" / "python"
    if not (venv / ".ready").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        install = [str(found), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise RuntimeError(f"{' '.join(requirements)} does not install: {reason}")
        (venv / ".ready").touch()
    return found
