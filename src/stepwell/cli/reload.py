"""See when the code changes. Only sees: the supervisor decides what comes of it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

from stepwell.errors import ConfigError

# A burst of changes, as git makes them, is over when nothing has happened for the first of these; but it is not waited
# for longer than the second. Both in milliseconds.
_QUIET = 100
_LONGEST_BURST = 1000
_NOT_SOURCES = (".stepwell", "site-packages")


def check_installed() -> None:
    """Raise what says how to get what is needed, unless it is there."""
    if find_spec("watchfiles") is None:
        raise ConfigError("to reload on changes needs watchfiles: pip install 'stepwell[reload]'")


async def changes(root: Path) -> AsyncIterator[list[str]]:
    """The Python files below a directory that changed, came or went, burst by burst."""
    from watchfiles import Change, PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType]

    class Sources(PythonFilter):
        ignore_dirs = (*PythonFilter.ignore_dirs, *_NOT_SOURCES)

    sources = Sources()

    def below(path: str) -> str:
        return os.path.relpath(path, root)

    def wanted(change: Change, path: str) -> bool:
        # By the path below the root: a project may itself stand in a directory that is called like one to ignore.
        return sources(change, below(path))

    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # the supervisor says it in its own words
    watching = awatch(root, watch_filter=wanted, debounce=_LONGEST_BURST, step=_QUIET, ignore_permission_denied=True)
    async for burst in watching:
        yield sorted({below(path) for _, path in burst})
