"""Copy a JSON value with changes, however deep it is nested: it may be deeper than a recursion in Python can go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

TOO_DEEP = "(nested too deep to be shown)"


def copied(value: Any, replace: Callable[[str | None, Any, int], Any]) -> Any:
    """A copy in which `replace` has replaced the value itself, its fields and items, and so on inwards. It gets the
    name of a field, or None, what is there, and how many objects and lists hold it. What it returns is looked into."""
    root = [value]
    todo: list[tuple[int, dict[str, Any] | list[Any]]] = [(0, root)]
    while todo:
        depth, inside = todo.pop()
        named = isinstance(inside, dict)
        for place, old in inside.items() if isinstance(inside, dict) else enumerate(inside):
            new = replace(str(place) if named else None, old, depth)
            if isinstance(new, dict):
                new = dict(cast("dict[str, Any]", new))
                todo.append((depth + 1, new))
            elif isinstance(new, list | tuple):
                new = list(cast("list[Any]", new))
                todo.append((depth + 1, new))
            inside[place] = new  # pyright: ignore[reportArgumentType, reportCallIssue]
    return root[0]


def shallow(value: Any, most: int) -> Any:
    """A copy in which objects and lists inside of `most` others are replaced by a text."""
    return copied(
        value, lambda _, found, depth: TOO_DEEP if depth >= most and isinstance(found, dict | list | tuple) else found
    )
