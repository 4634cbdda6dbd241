"""The levels of log lines by name. Levels that a program has named itself are shown as numbers."""

from __future__ import annotations

import logging

LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_NAMES = {level: name for name, level in LEVELS.items()}


def level_name(level: int) -> str:
    return _NAMES.get(level, str(level))
