"""Names of tasks, queues, steps, events and other things that people name."""

from __future__ import annotations

from stepwell.errors import ConfigError


def check_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError(f"{what} is {name!r}: it must be text of 1 to 200 printable characters")
    return name
