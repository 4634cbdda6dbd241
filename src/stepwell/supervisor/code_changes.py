"""Watch a directory for changed Python files. The supervisor decides what to do about them."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install

# Tools such as git change files in bursts. A burst ends after _QUIET ms without a change, at the latest after
# _LONGEST_BURST ms.
_QUIET = 100
_LONGEST_BURST = 1000
_NOT_SOURCES = (".stepwell", "site-packages")


def check_installed() -> None:
    if find_spec("watchfiles") is None:
        raise ConfigError(f"reloading on changes needs watchfiles: {how_to_install('reload')}")


async def changes(root: Path) -> AsyncIterator[list[str]]:
    """Yield, for each burst, the Python files below `root` that were changed, added or removed."""
    from watchfiles import Change, PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType]

    class Sources(PythonFilter):
        ignore_dirs = (*PythonFilter.ignore_dirs, *_NOT_SOURCES)

    sources = Sources()

    def below(path: str) -> str:
        return os.path.relpath(path, root)

    def wanted(change: Change, path: str) -> bool:
        # Only the part below the root counts: the project itself may be inside a directory with an ignored name.
        return sources(change, below(path))

    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # the supervisor logs changes itself
    watching = awatch(root, watch_filter=wanted, debounce=_LONGEST_BURST, step=_QUIET, ignore_permission_denied=True)
    async for burst in watching:
        yield sorted({below(path) for _, path in burst})
