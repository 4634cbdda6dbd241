"""Hide the values of named fields from people who look at jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepwell.values.json_copy import copied
from stepwell.values.sealing import PLAIN, Sealer

HIDDEN = "[redacted]"


class Redaction:
    """The names of fields whose values nobody sees, ignoring case. `sealer` opens the values in which they may be."""

    def __init__(self, names: Iterable[str], sealer: Sealer = PLAIN) -> None:
        self.names = frozenset(name.strip().lower() for name in names)
        self.sealer = sealer

    def __bool__(self) -> bool:
        return bool(self.names)

    def hides(self, name: str) -> bool:
        return name.strip().lower() in self.names

    def hides_path(self, path: str) -> bool:
        """Whether a path with dots names a hidden field, or leads through one."""
        return any(self.hides(part) for part in (path, *path.split(".")))

    def apply(self, value: Any) -> Any:
        """Return a copy of the value with hidden fields."""
        return copied(value, self.hidden) if self.names else value

    def hidden(self, name: str | None, value: Any, _depth: int = 0) -> Any:
        """A field or an item as it may be shown, for `copied`."""
        return HIDDEN if name is not None and self.hides(name) else value

    def touches(self, value: Any) -> bool:
        """Whether something in the value is hidden."""
        touched = False

        def look(name: str | None, field: Any, _depth: int) -> Any:
            nonlocal touched
            touched = touched or self.hidden(name, field) != field
            return field

        if self.names:
            copied(value, look)
        return touched
