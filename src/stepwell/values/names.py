"""Names that people give: to tasks, queues, steps, events."""

from __future__ import annotations

from stepwell.errors import ConfigError


def check_name(name: str, what: str) -> str:
    """The same name, if it can be one."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError(f"{what} is {name!r}: it must be text of 1 to 200 printable characters")
    return name
