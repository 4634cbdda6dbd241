"""The resources of an app, as `@app.resource` registers them."""

from __future__ import annotations

import contextlib
import inspect
import threading
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from stepwell.errors import ConfigError

_WRAPPERS: tuple[Any, ...] = (
    AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, AbstractAsyncContextManager,
    AbstractContextManager,
)  # fmt: skip

# Before Python 3.13 these are functions, and the classes of what they make have no names.
_LOCKS: tuple[tuple[Any, type], ...] = tuple((make, type(make())) for make in (threading.Lock, threading.RLock))


class Resource:
    """A function that makes a resource: a generator that yields it once, or a function that returns it, or a context
    manager for it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self.name = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
        self.is_async = inspect.isasyncgenfunction(fn) or inspect.iscoroutinefunction(fn)
        self._kind: Any = None
        for parameter in inspect.signature(fn).parameters.values():
            if parameter.default is parameter.empty:
                raise ConfigError(f"@app.resource: {self.name} takes arguments: it is called without any")
        if inspect.signature(fn).return_annotation is inspect.Signature.empty:
            raise ConfigError(
                f"@app.resource: {self.name} does not say what it makes: annotate it, such as "
                "'-> AsyncIterator[Client]' or '-> Client'"
            )
        with contextlib.suppress(NameError):  # it may name a class that is defined further down
            _ = self.kind

    @property
    def kind(self) -> Any:
        """The type of the resource, by its annotation."""
        if self._kind is None:
            returned = typing.get_type_hints(self._fn).get("return")
            wrapper = typing.get_origin(returned)
            made = typing.get_args(returned)[0] if wrapper in _WRAPPERS else returned
            if made is None or made is type(None) or made is Any:
                raise ConfigError(f"@app.resource: {self.name} makes nothing to ask for: annotate it with a type")
            # Its `make` and its context manager belong on the event loop.
            self.is_async = self.is_async or wrapper is AbstractAsyncContextManager or hasattr(made, "__aenter__")
            self._kind = made
        return self._kind

    def is_itself(self, manager: Any, entered: Any) -> bool:
        """Whether the manager is the resource, and what it was entered as is not: 'with' on a lock takes it and returns
        no lock, and 'with' on a temporary directory returns its path. Nobody can tell before it is entered."""
        kind = self.kind
        while isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        kind = typing.get_origin(kind) or kind
        kind = next((made for make, made in _LOCKS if make is kind), kind)
        try:
            return isinstance(manager, kind) and not isinstance(entered, kind)
        except TypeError:  # not a class, or a protocol that cannot be checked
            return False

    def make(self) -> Any:
        """Call the function. The result is a context manager, an awaitable, or the resource itself."""
        if inspect.isasyncgenfunction(self._fn):
            return contextlib.asynccontextmanager(self._fn)()
        if inspect.isgeneratorfunction(self._fn):
            return contextlib.contextmanager(self._fn)()
        return self._fn()


class Resources:
    """The resources of an app, in the order in which they were registered."""

    def __init__(self) -> None:
        self.all: list[Resource] = []

    def add(self, fn: Callable[..., Any]) -> None:
        made = Resource(fn)
        self.all.append(made)
        with contextlib.suppress(NameError):
            self._refuse_twins(made)

    def find(self, kind: Any) -> Resource | None:
        """The resource of this type, or else the only one of a type derived from it. Raises `ConfigError` if there are
        several."""
        if exact := [one for one in self.all if one.kind == kind]:
            return exact[0]
        try:
            near = [one for one in self.all if isinstance(one.kind, type) and issubclass(one.kind, kind)]
        except TypeError:  # not a class, or a protocol that cannot be checked
            near = []
        if len(near) > 1:
            names = " and ".join(one.name for one in near)
            raise ConfigError(f"{names} both make a {_said(kind)}: ask for the type of one of them")
        return near[0] if near else None

    def check(self, wanted: typing.Mapping[str, Any], task: str, *, in_process: bool) -> None:
        """Raise `ConfigError` if there is no resource for a parameter of a task."""
        for parameter, kind in wanted.items():
            found = self.find(kind)
            if found is None:
                raise ConfigError(
                    f"task {task!r}: no resource makes the {_said(kind)} for its parameter {parameter!r}: write a "
                    "function with @app.resource that does"
                )
            if in_process and found.is_async:
                raise ConfigError(async_in_process(found, task))

    def _refuse_twins(self, made: Resource) -> None:
        for one in self.all:
            if one is not made and one.kind == made.kind:
                self.all.remove(made)
                raise ConfigError(
                    f"{one.name} and {made.name} both make a {_said(made.kind)}: give one of them a type of its own, "
                    "such as a subclass or a NewType"
                )


def async_in_process(resource: Resource, task: str) -> str:
    return (
        f"task {task!r} runs in a process, which has no event loop, and the resource {resource.name} is async: write a "
        "plain one for it"
    )


def _said(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)
