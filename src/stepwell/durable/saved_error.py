"""Errors of steps: how they are saved, and how a replay raises them again."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.errors import StepFailed
from stepwell.errors.text import error_message, error_name
from stepwell.values.step import SavedError


def describe_error(error: BaseException) -> SavedError:
    return SavedError(error_name(error), error_message(error))


def saved_error(key: str, error: SavedError) -> StepFailed:
    """The error to raise for a saved failure: also an instance of the original class, if that is loaded."""
    name, message = error.type or "Exception", error.message or ""
    kind = _class_named(name)
    if kind is not None and issubclass(kind, Exception):
        # Some classes cannot be subclassed, and others take other arguments.
        with contextlib.suppress(TypeError, AttributeError):
            both: Any = type(kind.__name__, (StepFailed, kind), {"__module__": kind.__module__})
            both.__qualname__ = kind.__qualname__
            return both(key, name, message, final=error.final)
    return StepFailed(key, name, message, final=error.final)


def can_be_raised_again(error: BaseException) -> bool:
    """Whether the record of an error is enough to raise one of its class."""
    kind = TimeoutError if isinstance(error, TimeLimitExpired) else type(error)
    return isinstance(saved_error("", describe_error(error)), kind)


def _class_named(name: str) -> type[BaseException] | None:
    module, _, qualname = name.rpartition(".")
    found: Any = sys.modules.get(module)
    if not module:
        found = builtins if hasattr(builtins, name) else sys.modules.get("__main__")
    while found is None and module:
        # A nested class: the module's name is shorter.
        module, _, outer = module.rpartition(".")
        qualname = f"{outer}.{qualname}"
        found = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if inspect.isclass(found) and issubclass(found, BaseException) else None


class ErrorOrigin(NamedTuple):
    """The step that an error came from. `final`: the step has used up its own attempts. `beside` are the steps that
    failed in other branches of the same gather, whose errors the handler does not see."""

    key: str
    final: bool
    beside: tuple[str, ...] = ()


def tag_error(error: Exception, key: str, *, final: bool) -> None:
    """Mark an error with the step it came from, in case it leaves the handler."""
    with contextlib.suppress(AttributeError):
        error.stepwell_step = ErrorOrigin(key, final)  # pyright: ignore[reportAttributeAccessIssue]


def tag_beside(error: BaseException, others: Iterable[BaseException]) -> None:
    """Mark an error with the steps that failed beside it: they are tried again with it."""
    step = origin_of(error)
    found = [other for other in map(origin_of, others) if other is not None]
    if step is not None and found:
        beside = dict.fromkeys((*step.beside, *(key for other in found for key in (other.key, *other.beside))))
        with contextlib.suppress(AttributeError):
            error.stepwell_step = step._replace(beside=tuple(beside))  # pyright: ignore[reportAttributeAccessIssue]


def tag_decision(error: Exception, key: str) -> None:
    """Mark an error with the `ctx.first` that it has ended: if the step is tried again, so are all its branches."""
    step = origin_of(error)
    if step is None:
        tag_error(error, key, final=False)
    elif key not in step.beside:
        with contextlib.suppress(AttributeError):
            error.stepwell_step = step._replace(beside=(*step.beside, key))  # pyright: ignore[reportAttributeAccessIssue]


def origin_of(error: BaseException) -> ErrorOrigin | None:
    tagged: ErrorOrigin | None = getattr(error, "stepwell_step", None)
    if tagged is None and isinstance(error, StepFailed):
        return ErrorOrigin(error.key, error.final)
    return tagged
