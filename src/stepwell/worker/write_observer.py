"""A hook around each write of a worker. Only tests set it: they end the process there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Written = Callable[[Sequence[Any]], None]
"""Called with the rows of the answer, before any other code has seen them."""
Observer = Callable[[str, str], Written]
"""Called with the connection's name and the statement, before it is sent."""

observer: Observer | None = None


def about_to_write(where: str, text: str) -> Written:
    """Tell the observer that a statement is about to be sent. Call the returned function when it is answered."""
    return ignore if observer is None else observer(where, text)


def ignore(_: Sequence[Any]) -> None:
    pass
