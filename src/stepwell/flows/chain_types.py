"""The type of `app.chain`: the arguments of the first function, the result of the last, and that each function takes
what the one before it returns.

Pyright infers that for up to six steps. Mypy cannot infer a value that a function may return bare, awaited or in a
`Next`, so it knows only the arguments. `app.chain` itself refuses steps that do not fit, whatever the type checker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.flows.chain import Chain, Step
from stepwell.jobs.callable_task import ContextFunction, LooseFunction, SyncContextFunction
from stepwell.values.admission import Fair, Limit
from stepwell.values.directives import Done, Next
from stepwell.values.duration import Duration
from stepwell.values.policy import Keep
from stepwell.values.rate import Rate
from stepwell.values.retry import Retry
from stepwell.values.unique import OnConflict, Unique

# Mypy takes a variable of this name to be true. Pyright uses the last definition of a class.
MYPY = False

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
T = TypeVar("T")
Taken = TypeVar("Taken", contravariant=True)
Returned = TypeVar("Returned", covariant=True)


class ChainOptions(TypedDict, total=False):
    """The keyword arguments of `app.chain` and `app.machine`."""

    queue: str | None
    priority: int
    retry: Retry | None
    timeout: Duration | None
    keep: Keep | None
    keep_failed: Keep | None
    unique: str | Literal[True] | Unique | None
    on_conflict: OnConflict | None
    limit: Limit | None
    limits: Sequence[Limit]
    rate: Rate | None
    rates: Sequence[Rate]
    fair: str | Fair | None
    logs: bool | None
    maintainer: str | None
    runbook: str | None


class Later(Protocol[Taken, Returned]):
    """A `Step` that is not the first: its function takes one value besides a context."""

    def given(self, value: Taken, /) -> Returned: ...


Returns: TypeAlias = Awaitable[A | Next[A] | Done[T]] | A | Next[A] | Done[T]
"""The return type of a step that passes on an A, or ends the chain with a T."""

# The first step, by its first parameter.
Loose: TypeAlias = LooseFunction[Returns[A, T]]
Ctx: TypeAlias = ContextFunction[P, Returns[A, T]]
SyncCtx: TypeAlias = SyncContextFunction[P, Returns[A, T]]
Plain: TypeAlias = Step[P, Returns[A, T]] | Callable[P, Returns[A, T]]

Then: TypeAlias = (
    Callable[[A], Returns[B, T]]
    | Callable[[Context, A], Returns[B, T]]
    | Callable[[SyncContext, A], Returns[B, T]]
    | Later[A, Returns[B, T]]
)
"""A later step, which takes an A."""

AnyStep: TypeAlias = Callable[..., Any] | Step[..., Any]
SixOrMore: TypeAlias = tuple[AnyStep, AnyStep, AnyStep, AnyStep, AnyStep, AnyStep, *tuple[AnyStep, ...]]


if MYPY:

    class MakeChain(Protocol):  # pyright: ignore[reportRedeclaration]
        """`app.chain`."""

        @overload
        def __call__(
            self, name: str, first: LooseFunction[Any], /, *steps: AnyStep, **options: Unpack[ChainOptions]
        ) -> Chain[..., Any]: ...
        @overload
        def __call__(
            self, name: str, first: ContextFunction[P, Any], /, *steps: AnyStep, **options: Unpack[ChainOptions]
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self, name: str, first: SyncContextFunction[P, Any], /, *steps: AnyStep, **options: Unpack[ChainOptions]
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self, name: str, first: Step[P, Any] | Callable[P, Any], /, *steps: AnyStep, **options: Unpack[ChainOptions]
        ) -> Chain[P, Any]: ...

else:

    class MakeChain(Protocol):
        """`app.chain`."""

        @overload
        def __call__(self, name: str, a: Loose[T, T], /, **options: Unpack[ChainOptions]) -> Chain[..., T]: ...
        @overload
        def __call__(self, name: str, a: Ctx[P, T, T], /, **options: Unpack[ChainOptions]) -> Chain[P, T]: ...
        @overload
        def __call__(self, name: str, a: SyncCtx[P, T, T], /, **options: Unpack[ChainOptions]) -> Chain[P, T]: ...
        @overload
        def __call__(self, name: str, a: Plain[P, T, T], /, **options: Unpack[ChainOptions]) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Loose[A, T], b: Then[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self, name: str, a: Ctx[P, A, T], b: Then[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: SyncCtx[P, A, T], b: Then[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Plain[P, A, T], b: Then[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Loose[A, T], b: Then[A, B, T], c: Then[B, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self, name: str, a: Ctx[P, A, T], b: Then[A, B, T], c: Then[B, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: SyncCtx[P, A, T], b: Then[A, B, T], c: Then[B, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Plain[P, A, T], b: Then[A, B, T], c: Then[B, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(self, name: str, a: Loose[A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[..., T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Ctx[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: SyncCtx[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Plain[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Loose[A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, T, T], /, **options: Unpack[ChainOptions]) -> Chain[..., T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Ctx[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, T, T], /, **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: SyncCtx[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, T, T], /, **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Plain[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, T, T], /, **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Loose[A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, E, T], f: Then[E, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[..., T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Ctx[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, E, T], f: Then[E, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: SyncCtx[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, E, T], f: Then[E, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Plain[P, A, T], b: Then[A, B, T], c: Then[B, C, T], d: Then[C, D, T],
                     e: Then[D, E, T], f: Then[E, T, T], /,
                     **options: Unpack[ChainOptions]) -> Chain[P, T]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: LooseFunction[Any], /, *steps: *SixOrMore,
                     **options: Unpack[ChainOptions]) -> Chain[..., Any]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: ContextFunction[P, Any], /, *steps: *SixOrMore,
                     **options: Unpack[ChainOptions]) -> Chain[P, Any]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: SyncContextFunction[P, Any], /, *steps: *SixOrMore,
                     **options: Unpack[ChainOptions]) -> Chain[P, Any]: ...  # fmt: skip
        @overload
        def __call__(self, name: str, a: Step[P, Any] | Callable[P, Any], /, *steps: *SixOrMore,
                     **options: Unpack[ChainOptions]) -> Chain[P, Any]: ...  # fmt: skip
