"""Compare the annotations of a chain's functions: does the return value of one fit the parameter of the next?"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, Union

from stepwell.values.directives import Done, Next


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except (NameError, TypeError, AttributeError):
        return {}


def output_of(annotation: Any, *, last: bool) -> Any:
    """The type that a step passes on, bare or inside Next. For the last step it is the result, which may be in Done."""
    kept: list[Any] = []
    for member in _members(annotation):
        origin = typing.get_origin(member) or member
        if origin is Done:
            kept += typing.get_args(member)[:1] or [Any] if last else []
        elif origin is Next:
            kept += typing.get_args(member)[:1] or [Any]
        else:
            kept.append(member)
    return Union[tuple(kept)] if kept else Any  # noqa: UP007


def ends_of(annotation: Any) -> list[Any]:
    """The types of results with which a step ends its chain: those inside Done."""
    ends = [member for member in _members(annotation) if (typing.get_origin(member) or member) is Done]
    return [end for member in ends for end in typing.get_args(member)[:1] or [Any]]


def fits(given: Any, taken: Any) -> bool:
    """Whether a value of one annotation can fit the other. Annotations that cannot be compared count as fitting."""
    if given is Any or taken is Any or given == taken or isinstance(given, TypeVar) or isinstance(taken, TypeVar):
        return True
    if _is_union(given):
        return all(fits(member, taken) for member in typing.get_args(given))
    if _is_union(taken):
        return any(fits(given, member) for member in typing.get_args(taken))
    own, other = typing.get_origin(given) or given, typing.get_origin(taken) or taken
    if isinstance(own, type) and isinstance(other, type):
        if not issubclass(own, other) and (own, other) != (int, float):
            return False
        inner = list(zip(typing.get_args(given), typing.get_args(taken), strict=False))
        return all(fits(a, b) for a, b in inner)
    return True


def _members(annotation: Any) -> list[Any]:
    return list(typing.get_args(annotation)) if _is_union(annotation) else [annotation]


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType)


def written(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
