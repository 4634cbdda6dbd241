"""Who is told of what a worker writes, before and after: nobody, but in tests that end the process there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Written = Callable[[Sequence[Any]], None]
"""Called with the rows that were answered, before anybody else has seen them."""
Watch = Callable[[str, str], Written]
"""Called with the connection's name and the statement, before it is sent."""

watch: Watch | None = None


def about_to_write(where: str, text: str) -> Written:
    """Say that something is about to be written; what is returned is to be called when it has been."""
    return _unwatched if watch is None else watch(where, text)


def _unwatched(_: Sequence[Any]) -> None:
    pass
