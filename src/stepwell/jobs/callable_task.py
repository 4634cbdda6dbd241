"""Tasks of one function, as `@app.task` makes them. Calling one calls its function: no job, no retries, no worker.

There are four classes, so that a type checker knows the arguments and the return type of a call. `Task[P, R]` alone
knows only the arguments of a job, without the context, and its awaited result. (`fn` does not return Coroutine[Any,
Any, R]: mypy gives up when overloads such as those of `ctx.map` get an Any.)
"""
# pyright: reportOverlappingOverload=false

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import ConfigError
from stepwell.jobs.codec import Codec
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.task import Task

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Given = TypeVar("Given", contravariant=True)
Args = ParamSpec("Args")
Result = TypeVar("Result")


class Anything:
    """No value has this type. A function whose first parameter accepts it accepts anything there: the parameter has no
    annotation, or `Any` or `object`. Such a function also accepts a context, but does not ask for one."""


# Functions by their first parameter: one that accepts anything, or a context.
LooseFunction: TypeAlias = Callable[Concatenate[Anything, ...], Result]
ContextFunction: TypeAlias = Callable[Concatenate[Context, Args], Result]
SyncContextFunction: TypeAlias = Callable[Concatenate[SyncContext, Args], Result]
Async: TypeAlias = Coroutine[Any, Any, Result]


class AsyncTask(Task[P, R]):
    """A task of an `async def`. `await task(...)` calls the function here, like `await task.fn(...)`."""

    fn: Callable[P, Coroutine[object, None, R]]

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.fn(*args, **kwargs)


class SyncTask(Task[P, R]):
    """A task of a plain function. `task(...)` calls the function here, like `task.fn(...)`."""

    fn: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)


class AsyncContextTask(Task[P, R]):
    """A task of an `async def` that takes a `Context` first. It is enqueued without one. A call needs one, for example
    the context of the calling handler: `await task(ctx, ...)`."""

    fn: Callable[Concatenate[Context, P], Coroutine[object, None, R]]

    if TYPE_CHECKING:

        async def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    else:

        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            _refuse_without_context(self, args, kwargs)
            return await self.fn(*args, **kwargs)


class SyncContextTask(Task[P, R], Generic[P, R, Given]):
    """A task of a plain function that takes a `SyncContext`, or a `Context`, first. It is enqueued without one. A call
    needs one: `task(ctx, ...)`."""

    fn: Callable[Concatenate[Given, P], R]

    if TYPE_CHECKING:

        def __call__(self, ctx: Given, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            _refuse_without_context(self, args, kwargs)
            return self.fn(*args, **kwargs)


def _refuse_without_context(task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        inspect.signature(task.fn).bind(*args, **kwargs)
    except TypeError as error:
        name = task.name
        raise TypeError(
            f"{name}(...): {error}. Calling a task calls its function, and this one takes its context first: "
            f"enqueue it with {name}.enqueue(...) or await {name}.aenqueue(...), or in a handler call {name}(ctx, ...)"
        ) from None


class TaskDecorator(Protocol):
    """The decorator that `@app.task(...)` returns: it takes the function and returns the task, like `app.task`."""

    @overload
    def __call__(self, fn: LooseFunction[Anything], /) -> SyncTask[..., Any]: ...
    @overload
    def __call__(self, fn: LooseFunction[Async[Result]], /) -> AsyncTask[..., Result]: ...
    @overload
    def __call__(self, fn: LooseFunction[Result], /) -> SyncTask[..., Result]: ...
    @overload
    def __call__(self, fn: ContextFunction[Args, Async[Result]], /) -> AsyncContextTask[Args, Result]: ...
    @overload
    def __call__(self, fn: Callable[Args, Async[Result]], /) -> AsyncTask[Args, Result]: ...
    @overload
    def __call__(self, fn: ContextFunction[Args, Result], /) -> SyncContextTask[Args, Result, Context]: ...
    @overload
    def __call__(self, fn: SyncContextFunction[Args, Result], /) -> SyncContextTask[Args, Result, SyncContext]: ...
    @overload
    def __call__(self, fn: Callable[Args, Result], /) -> SyncTask[Args, Result]: ...


def new_task(job_store: JobStore, fn: Callable[..., Any], name: str, **options: Any) -> Task[..., Any]:
    codec = Codec(name, fn)
    is_async, takes_context = inspect.iscoroutinefunction(fn), codec.context_parameter is not None
    kind: Any = (
        (AsyncContextTask if is_async else SyncContextTask) if takes_context else (AsyncTask if is_async else SyncTask)
    )
    return kind(job_store, fn, name=name, codec=codec, **options)


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
