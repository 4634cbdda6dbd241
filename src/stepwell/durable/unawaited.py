"""Steps and waits that a handler has made and not awaited: their effect is unknown, so its job must not succeed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from stepwell.durable.function_info import name_of
from stepwell.errors import ConfigError, NotAwaited

P = ParamSpec("P")
T = TypeVar("T")

_FEW = 64


class Unentered(Protocol):
    """A block that is made before it is entered."""

    entered: bool
    key: str


class Made:
    """What a run has made and not seen to the end: coroutines of its context, and transactions."""

    __slots__ = ("_all", "_most")

    def __init__(self) -> None:
        # By identity, and only while they are kept here: so no other can have the same.
        self._all: dict[int, Any] = {}
        self._most = _FEW

    def add(self, made: Any) -> None:
        """Remember something until it has ended."""
        if len(self._all) >= self._most:
            self._all = {key: one for key, one in self._all.items() if _is_open(one)}
            # Doubled, so that a thousand branches of one gather are not looked through for each of them.
            self._most = max(_FEW, 2 * len(self._all))
        self._all[id(made)] = made

    def hand_over(self, branches: Iterable[object]) -> None:
        """Branches were given to a `gather` or `first`, which sees to them."""
        for branch in branches:
            self._all.pop(id(branch), None)

    @property
    def any_open(self) -> bool:
        """Whether something has not ended."""
        return any(_is_open(one) for one in self._all.values())

    def refuse_unused(self, task: str) -> None:
        """Raise `NotAwaited` if something was made and never used."""
        if unused := [one for one in self._all.values() if _is_unused(one)]:
            named = self._name_and_close(unused)
            raise NotAwaited(
                f"task {task!r} returned, and never awaited {named}: that did not run; write 'await' before it"
            )

    def refuse_open(self, task: str) -> None:
        """Raise `NotAwaited` if something has not ended."""
        if left := [one for one in self._all.values() if _is_open(one)]:
            named = self._name_and_close(left)
            raise NotAwaited(
                f"task {task!r} returned while {named} had not ended: await it, or the task that runs it, before you "
                "return"
            )

    def _name_and_close(self, some: list[Any]) -> str:
        what = [_describe(one) for one in some[:6]]
        self.close()
        return f"{', '.join(what[:5])}{' and others' if what[5:] else ''}"

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


# What these return is not a Coroutine[Any, Any, T]: where overloads are given an Any, mypy gives up.
def to_be_awaited(
    method: Callable[Concatenate[Self, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Self, P], Coroutine[object, None, T]]:
    """For a coroutine method of a context: what it returns must be awaited."""

    @wraps(method)
    def make(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, T]:
        made = method(self, *args, **kwargs)
        self.made.add(made)
        return made

    return make


def takes_branches(
    method: Callable[Concatenate[Self, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Self, P], Coroutine[object, None, T]]:
    """The same for `gather` and `first`, which see to the branches that they are given."""

    @wraps(method)
    def make(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, T]:
        self.made.hand_over(args)
        made = method(self, *args, **kwargs)
        self.made.add(made)
        return made

    return make


def _is_open(one: Coroutine[Any, Any, Any] | Unentered) -> bool:
    return one.cr_frame is not None if isinstance(one, CoroutineType) else _is_unused(one)


def _is_unused(one: Coroutine[Any, Any, Any] | Unentered) -> bool:
    if isinstance(one, CoroutineType):
        # Most have ended: that is quick to see.
        return one.cr_frame is not None and inspect.getcoroutinestate(one) == inspect.CORO_CREATED
    return not cast("Unentered", one).entered


def _describe(one: Coroutine[Any, Any, Any] | Unentered) -> str:
    if not isinstance(one, CoroutineType):
        return f"ctx.transaction({cast('Unentered', one).key!r})"
    name = one.__name__
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
