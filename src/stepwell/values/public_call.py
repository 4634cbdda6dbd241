"""Name the public call, and the option to use, when a call or a value is given an option that does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from stepwell.errors.text import nearest

F = TypeVar("F", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

# The names of these options in other libraries.
_ELSEWHERE = {
    "countdown": "task.using(delay=...)",
    "eta": "task.using(run_at=...)",
    "every": "the interval first, such as app.schedule('15m')",
    "max_retries": "retry=Retry(max_attempts=...), which counts the first attempt, too",
}


def refuse_unknown(call: str, options: Mapping[str, object], known: type) -> None:
    """Raise `TypeError` if a keyword argument is not in `known`, the TypedDict of the options of a public call."""
    _refuse(call, options, known.__annotations__)


def public_call(name: str, options: type | None = None) -> Callable[[F], F]:
    """Name a function as its users do in the `TypeError` for an unknown option. Its own signature stays; `options` is
    the TypedDict of its keyword arguments, if it has one."""
    more: Mapping[str, object] = {} if options is None else options.__annotations__

    def decorate(fn: F) -> F:
        known = {
            p.name: None for p in signature(fn).parameters.values() if p.name != "self" and p.kind != p.VAR_KEYWORD
        }
        known |= dict.fromkeys(more)

        @wraps(fn)
        def call(*args: Any, **options: Any) -> Any:
            _refuse(name, options, known)
            return fn(*args, **options)

        return cast("F", call)

    return decorate


def public_value(**elsewhere: str) -> Callable[[Class], Class]:
    """Let a public class name the option to use when it is made with one that it does not have. `elsewhere`: the names
    of its options in other libraries."""

    def decorate(made: Class) -> Class:
        init: Callable[..., None] = made.__init__
        known = {p.name: None for p in signature(init).parameters.values() if p.name != "self"}
        name = made.__name__

        @wraps(init)
        def checked(self: Any, *args: Any, **options: Any) -> None:
            if options:
                _refuse(name, options, known, elsewhere)
            init(self, *args, **options)

        made.__init__ = checked
        return made

    return decorate


def _refuse(
    call: str,
    options: Mapping[str, object],
    known: Mapping[str, object],
    elsewhere: Mapping[str, str] = _ELSEWHERE,
) -> None:
    if options.keys() <= known.keys():
        return
    word = next(option for option in options if option not in known)
    act = f": write {elsewhere[word]}" if word in elsewhere else nearest(word, list(known))
    raise TypeError(f"{call}() has no option {word!r}{act or ': it takes ' + ', '.join(known)}")
