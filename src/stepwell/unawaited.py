"""Steps and waits that a handler has made and not used: they were never run, so its job must not succeed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from stepwell.errors import ConfigError, NotAwaited
from stepwell.step_function import name_of

P = ParamSpec("P")
T = TypeVar("T")

_FEW = 64


class Unentered(Protocol):
    """A block that is made before it is entered."""

    entered: bool
    key: str


class Made:
    """What a run has made: coroutines of its context, and transactions."""

    __slots__ = ("_all", "_most")

    def __init__(self) -> None:
        # By identity, and only while they are kept here: so no other can have the same.
        self._all: dict[int, Any] = {}
        self._most = _FEW

    def add(self, made: Any) -> None:
        """Remember something until it is used."""
        if len(self._all) >= self._most:
            self._all = {key: one for key, one in self._all.items() if _is_unused(one)}
            # Doubled, so that a thousand branches of one gather are not looked through for each of them.
            self._most = max(_FEW, 2 * len(self._all))
        self._all[id(made)] = made

    def hand_over(self, branches: Iterable[object]) -> None:
        """Branches were given to a `gather` or `first`, which sees to them."""
        for branch in branches:
            self._all.pop(id(branch), None)

    def refuse_unused(self, task: str) -> None:
        """Raise `NotAwaited` if something was made and never used."""
        unused = [one for one in self._all.values() if _is_unused(one)]
        if not unused:
            return
        what = [_describe(one) for one in unused]
        self.close()
        raise NotAwaited(
            f"task {task!r} returned, and never awaited {', '.join(what[:5])}{' and others' if what[5:] else ''}: "
            "that did not run; write 'await' before it"
        )

    def close(self) -> None:
        """The run is over: let go of what was not used."""
        for one in self._all.values():
            if inspect.iscoroutine(one) and _is_unused(one):
                one.close()
        self._all.clear()


class _Makes(Protocol):
    @property
    def made(self) -> Made: ...


Self = TypeVar("Self", bound=_Makes)


def to_be_awaited(
    method: Callable[Concatenate[Self, P], CoroutineType[Any, Any, T]],
) -> Callable[Concatenate[Self, P], CoroutineType[Any, Any, T]]:
    """For a coroutine method of a context: what it returns must be awaited."""

    @wraps(method)
    def make(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> CoroutineType[Any, Any, T]:
        made = method(self, *args, **kwargs)
        self.made.add(made)
        return made

    return make


def takes_branches(
    method: Callable[Concatenate[Self, P], CoroutineType[Any, Any, T]],
) -> Callable[Concatenate[Self, P], CoroutineType[Any, Any, T]]:
    """The same for `gather` and `first`, which see to the branches that they are given."""

    @wraps(method)
    def make(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> CoroutineType[Any, Any, T]:
        self.made.hand_over(args)
        made = method(self, *args, **kwargs)
        self.made.add(made)
        return made

    return make


def _is_unused(one: Coroutine[Any, Any, Any] | Unentered) -> bool:
    if isinstance(one, CoroutineType):
        # Most have ended: that is quick to see.
        return one.cr_frame is not None and inspect.getcoroutinestate(one) == inspect.CORO_CREATED
    return not cast("Unentered", one).entered


def _describe(one: Coroutine[Any, Any, Any] | Unentered) -> str:
    if not isinstance(one, CoroutineType):
        return f"ctx.transaction({cast('Unentered', one).key!r})"
    name = one.__name__
    # It has not begun: so its arguments are as they were given.
    given: dict[str, Any] = {} if one.cr_frame is None else one.cr_frame.f_locals
    for argument in ("key", "fn", "event", "name"):
        value = given.get(argument)
        if callable(value):
            try:
                return f"ctx.{name}({name_of(value)})"
            except ConfigError:
                continue
        if isinstance(value, str):
            return f"ctx.{name}({value!r})"
    return f"ctx.{name}()"
