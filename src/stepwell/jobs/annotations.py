"""Read the annotations of a task, and what msgspec says about values that do not fit them."""

from __future__ import annotations

import inspect
import re
import types
import typing
from typing import Any, Union

from stepwell.values.directives import Restart


def without_restart(annotation: Any) -> Any:
    """Remove `Restart` from a return annotation: a job of a function `-> int | Restart` ends with an int."""
    if annotation is Restart:
        return Any
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    kept = tuple(member for member in typing.get_args(annotation) if member is not Restart)
    return annotation if len(kept) == len(typing.get_args(annotation)) else Union[kept]  # noqa: UP007


def name_the_argument(error: Exception) -> str:
    """Rewrite msgspec's "Expected `int`, got `str` - at `$.x`" with the argument's name."""
    text = str(error)
    match = re.search(r" - at `\$\.(\w+)(.*)`$", text)
    if match:
        return f"argument {match.group(1)!r}: {text[: match.start()]}" + (
            f" at {match.group(2)}" if match.group(2) else ""
        )
    return text


def context_by_text(parameters: list[inspect.Parameter]) -> str | None:
    """Find the context while annotations cannot be evaluated yet, so that their text is all that is known."""
    names = ("Context", "stepwell.Context", "SyncContext", "stepwell.SyncContext")
    return next((p.name for p in parameters if p.annotation in names), None)
