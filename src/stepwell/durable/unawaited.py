"""Steps and waits that a handler has made and not awaited: their effect is unknown, so its job must not succeed."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable, Sequence
from types import CoroutineType
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from stepwell.durable.function_info import name_of
from stepwell.errors import ConfigError, NotAwaited

_FEW = 64
# The branches that a coroutine of `ctx.gather` or `ctx.first` awaits once it runs.
_branches: WeakKeyDictionary[Coroutine[Any, Any, Any], Sequence[object]] = WeakKeyDictionary()


class Unentered(Protocol):
    """A block that is made before it is entered: a transaction."""

    entered: bool
    key: str


class Unawaited:
    """The coroutines and transactions that a run has made, unless they ended before the next one was made."""

    __slots__ = ("_all", "_most")

    def __init__(self) -> None:
        # By id(), which is unique while the object is kept here. Searches read a copy, because threads of a plain
        # function's branches may add to it.
        self._all: dict[int, Any] = {}
        self._most = _FEW

    def add(self, made: Any) -> None:
        if len(self._all) >= self._most:
            self._all = {key: one for key, one in list(self._all.items()) if is_open(one)}
            # Doubled: otherwise each of a thousand branches of one gather would search all the others.
            self._most = max(_FEW, 2 * len(self._all))
        self._all[id(made)] = made

    def hand_over(self, branches: Iterable[object]) -> None:
        """Forget branches that a `gather` or `first` awaits."""
        for branch in branches:
            self._all.pop(id(branch), None)

    @property
    def any_open(self) -> bool:
        return any(is_open(one) for one in list(self._all.values()))

    def refuse_unused(self, task: str) -> None:
        """Raise `NotAwaited` if one of them was never used."""
        if unused := [one for one in list(self._all.values()) if _is_unused(one)]:
            named = self._name_and_close(unused)
            raise NotAwaited(
                f"task {task!r} returned, and never awaited {named}: that did not run; write 'await' before it"
            )

    def refuse_open(self, task: str) -> None:
        """Raise `NotAwaited` if one of them has not ended."""
        if left := [one for one in list(self._all.values()) if is_open(one)]:
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
        """Close the coroutines that were never awaited, and forget all."""
        close_unused([one for one in list(self._all.values()) if inspect.iscoroutine(one) and _is_unused(one)])
        self._all.clear()


def note_branches(coroutine: Coroutine[Any, Any, Any], branches: Sequence[object]) -> None:
    _branches[coroutine] = branches


def close_unused(made: Iterable[object]) -> None:
    """Close coroutines that nobody awaits, and the branches of a `ctx.gather` or `ctx.first` among them."""
    for one in made:
        if inspect.iscoroutine(one):
            close_unused(_branches.get(one, ()))
        if isinstance(one, Coroutine):
            one.close()


def is_open(one: Coroutine[Any, Any, Any] | Unentered) -> bool:
    return one.cr_frame is not None if isinstance(one, CoroutineType) else _is_unused(one)


def _is_unused(one: Coroutine[Any, Any, Any] | Unentered) -> bool:
    if isinstance(one, CoroutineType):
        # Most have ended, and then the frame is gone.
        return one.cr_frame is not None and inspect.getcoroutinestate(one) == inspect.CORO_CREATED
    return not cast("Unentered", one).entered


def _describe(one: Coroutine[Any, Any, Any] | Unentered) -> str:
    if not isinstance(one, CoroutineType):
        return f"ctx.transaction({cast('Unentered', one).key!r})"
    # The coroutine functions behind the context have the names of its methods, and of their parameters.
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
