"""Name the public call, and the option to use, when a call is given an option that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from stepwell.error_text import nearest

F = TypeVar("F", bound=Callable[..., Any])

# The names of these options in other libraries.
_ELSEWHERE = {
    "countdown": "task.using(delay=...)",
    "eta": "task.using(run_at=...)",
    "every": "the interval first, such as app.schedule('15m')",
    "max_retries": "retry=Retry(max_attempts=...), which counts the first attempt, too",
}


def public_call(name: str) -> Callable[[F], F]:
    """Name a function as its users do in the `TypeError` for an unknown option. Its own signature stays."""

    def decorate(fn: F) -> F:
        known = [parameter for parameter in signature(fn).parameters if parameter != "self"]
        names = frozenset(known)

        @wraps(fn)
        def call(*args: Any, **options: Any) -> Any:
            if options.keys() <= names:
                return fn(*args, **options)
            word = next(option for option in options if option not in names)
            act = f": write {_ELSEWHERE[word]}" if word in _ELSEWHERE else nearest(word, known)
            raise TypeError(f"{name}() has no option {word!r}{act or ': it takes ' + ', '.join(known)}")

        return cast("F", call)

    return decorate
