"""Check which callables can be a task: functions that a worker finds by name, and no methods of objects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

from stepwell.errors import ConfigError


def check_function(given: object) -> Callable[..., Any]:
    """Return the function to register. Raises `ConfigError`, which says what to write instead, if it is none."""
    # In a class, @app.task may be above @staticmethod or below it.
    function = given.__func__ if isinstance(given, staticmethod) else given  # pyright: ignore[reportUnknownMemberType]
    # Since Python 3.14 partial is a descriptor, which isroutine accepts.
    if not callable(function) or not inspect.isroutine(function) or isinstance(function, functools.partial):
        if isinstance(given, classmethod):
            raise _is_method(given.__func__)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        raise ConfigError(f"app.task takes a function, not {given!r}: write one around it; options go by name")
    found = cast("Callable[..., Any]", function)
    if getattr(found, "__name__", None) == "<lambda>":
        raise ConfigError("app.task takes a function with a name, not a lambda: write 'def' with the task's name")
    if _belongs_to_object(found) or _is_method_of_class(found):
        raise _is_method(found)
    return found


def _belongs_to_object(fn: Callable[..., Any]) -> bool:
    """Whether it is bound to an object or a class, or is a method of a type written in C."""
    owner = getattr(fn, "__self__", None)
    return (owner is not None and not isinstance(owner, ModuleType)) or hasattr(fn, "__objclass__")


def _is_method_of_class(fn: Callable[..., Any]) -> bool:
    """Whether it is defined in a class and takes the instance or the class. Without that it is a static method."""
    place = getattr(fn, "__qualname__", "").rpartition(".")[0]
    if not place or place.endswith("<locals>"):
        return False
    try:
        parameters = list(inspect.signature(fn).parameters)
    except ValueError:
        return False
    return parameters[:1] in (["self"], ["cls"])


def _is_method(fn: Callable[..., Any]) -> ConfigError:
    name = getattr(fn, "__qualname__", repr(fn))
    return ConfigError(
        f"{name!r} is a method, and a worker has no object to call it on: register a function that makes or finds the "
        "object and calls the method, or make it a @staticmethod"
    )
