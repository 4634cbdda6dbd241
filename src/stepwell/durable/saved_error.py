"""Errors of steps: as they are saved, and as they are raised again when the job is resumed."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeGuard

from stepwell.error_text import error_message, error_name
from stepwell.errors import StepFailed
from stepwell.values.step import StepError


def describe_error(error: BaseException) -> StepError:
    """An error as it is saved."""
    return StepError(error_name(error), error_message(error))


def saved_error(key: str, error: StepError) -> StepFailed:
    """The error that a step failed with, to be raised again: of the same class, if that is loaded."""
    name, message = error.type or "Exception", error.message or ""
    kind = _class_named(name)
    if kind is not None and issubclass(kind, Exception):
        # Some classes cannot be built upon, others want more arguments or will not have ours.
        with contextlib.suppress(TypeError, AttributeError):
            both: Any = type(kind.__name__, (StepFailed, kind), {"__module__": kind.__module__})
            both.__qualname__ = kind.__qualname__
            return both(key, name, message, final=error.final)
    return StepFailed(key, name, message, final=error.final)


def can_be_raised_again(error: BaseException) -> bool:
    """Whether what is saved of an error is enough to raise one of its class."""
    return isinstance(saved_error("", describe_error(error)), type(error))


def _class_named(name: str) -> type[BaseException] | None:
    module, _, qualname = name.rpartition(".")
    found: Any = sys.modules.get(module)
    if not module:
        found = builtins if hasattr(builtins, name) else sys.modules.get("__main__")
    while found is None and module:
        # A class within a class: the module is shorter.
        module, _, outer = module.rpartition(".")
        qualname = f"{outer}.{qualname}"
        found = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if _is_error_class(found) else None


def _is_error_class(found: object) -> TypeGuard[type[BaseException]]:
    return isinstance(found, type) and issubclass(found, BaseException)


class FailedStep(NamedTuple):
    """The step that an error came from; `final`: it has been tried as often as its own policy allows. `beside` are
    those that failed in other branches of the same gather, and of whose errors nobody was told."""

    key: str
    final: bool
    beside: tuple[str, ...] = ()


def tag_error(error: Exception, key: str, *, final: bool) -> None:
    """Let it be known, should it leave the handler, which step it came from."""
    with contextlib.suppress(AttributeError):
        error.stepwell_step = FailedStep(key, final)  # pyright: ignore[reportAttributeAccessIssue]


def tag_beside(error: BaseException, others: Iterable[BaseException]) -> None:
    """Let it be known, too, which steps failed beside it: they are tried again with it."""
    step = step_of(error)
    found = [other for other in map(step_of, others) if other is not None]
    if step is not None and found:
        beside = dict.fromkeys((*step.beside, *(key for other in found for key in (other.key, *other.beside))))
        with contextlib.suppress(AttributeError):
            error.stepwell_step = step._replace(beside=tuple(beside))  # pyright: ignore[reportAttributeAccessIssue]


def step_of(error: BaseException) -> FailedStep | None:
    """The step that an error came from."""
    tagged: FailedStep | None = getattr(error, "stepwell_step", None)
    if tagged is None and isinstance(error, StepFailed):
        return FailedStep(error.key, error.final)
    return tagged
