"""Hide the values of named fields from people who look at jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

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
        """Return the value with hidden fields. What is nested too deep to be searched is hidden as a whole."""
        if not self.names:
            return value
        try:
            return self._apply(value)
        except RecursionError:
            return HIDDEN

    def touches(self, value: Any) -> bool:
        """Whether something in the value is hidden."""
        return bool(self.names) and self.apply(value) != value

    def _apply(self, value: Any) -> Any:
        if isinstance(value, dict):
            fields = cast("dict[Any, Any]", value)
            return {name: HIDDEN if self.hides(str(name)) else self._apply(field) for name, field in fields.items()}
        if isinstance(value, list):
            return [self._apply(item) for item in cast("list[Any]", value)]
        return value
