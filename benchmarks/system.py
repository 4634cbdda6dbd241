"""A system that is measured: its program, run by its own Python."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from stepwell.embedded import wheel_bin_dir

SYSTEMS = Path(__file__).parent / "systems"
_PATIENCE = 300
_KIT = Path(__file__).parent / "kit"


@dataclass(frozen=True)
class System:
    """The program in `systems/NAME`."""

    name: str
    python: Path = field(default=Path(sys.executable))

    @property
    def folder(self) -> Path:
        return SYSTEMS / self.name

    def start(
        self, environment: dict[str, str], *command: object, script: str = "bench.py", output: int | None = None
    ) -> subprocess.Popen[str]:
        """Start a command of its program (see `kit/program.py`), or another script of its folder."""
        return subprocess.Popen(
            [str(self.python), script, *map(str, command)],
            cwd=self.folder,
            # Some need psql, which comes with the server.
            env={
                **os.environ,
                **environment,
                # Ours last: what is measured is the same Stepwell that measures.
                "PYTHONPATH": ":".join(filter(None, (str(_KIT), str(self.folder), os.environ.get("PYTHONPATH")))),
                "PATH": f"{os.environ['PATH']}:{wheel_bin_dir()}",
            },
            stdout=output,
            text=True,
            # A group of its own, so that what it starts can be ended with it.
            start_new_session=True,
        )

    def run(self, environment: dict[str, str], *command: object, script: str = "bench.py") -> str:
        """Run a command to its end, and return what it printed."""
        process = self.start(environment, *command, script=script, output=subprocess.PIPE)
        try:
            said, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name}: {' '.join(map(str, command))} took more than {_PATIENCE} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, command))} ended with {process.returncode}")
        return said
