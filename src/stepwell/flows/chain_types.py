"""What a type checker knows of a chain: the arguments of the first function, the result of the last, and that each
takes what the one before it hands on.

Pyright solves that for up to six steps. Mypy does not solve for what a function may return as it is, awaited or in a
`Next`: it knows only the arguments. When the chain is made, what does not fit is refused either way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.flows.chain import Chain, Step
from stepwell.jobs.callable_task import Anything
from stepwell.values.directives import Done, Next
from stepwell.values.duration import Duration
from stepwell.values.policy import Keep
from stepwell.values.retry import Retry

# Mypy takes a variable of this name to be true; to pyright a class that is defined twice is what it is last.
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
    """What `app.chain` is given by name."""

    queue: str | None
    priority: int
    retry: Retry | None
    timeout: Duration | None
    keep: Keep | None
    keep_failed: Keep | None


class Later(Protocol[Taken, Returned]):
    """A `Step` that is not the first: besides a context its function takes one value, whatever the name."""

    def given(self, value: Taken, /) -> Returned: ...


Returns: TypeAlias = Awaitable[A | Next[A] | Done[T]] | A | Next[A] | Done[T]
"""What a step returns that hands on an A, or ends the chain with a T."""

# The first step, by what it takes first.
Loose: TypeAlias = Callable[Concatenate[Anything, ...], Returns[A, T]]
Ctx: TypeAlias = Callable[Concatenate[Context, P], Returns[A, T]]
SyncCtx: TypeAlias = Callable[Concatenate[SyncContext, P], Returns[A, T]]
Plain: TypeAlias = Step[P, Returns[A, T]] | Callable[P, Returns[A, T]]

NextStep: TypeAlias = (
    Callable[[A], Returns[B, T]]
    | Callable[[Context, A], Returns[B, T]]
    | Callable[[SyncContext, A], Returns[B, T]]
    | Later[A, Returns[B, T]]
)
"""A step that is given an A."""

AnyNextStep: TypeAlias = Callable[..., Any] | Step[..., Any]


if MYPY:

    class MakeChain(Protocol):  # pyright: ignore[reportRedeclaration]
        """`app.chain`."""

        @overload
        def __call__(
            self,
            name: str,
            first: Callable[Concatenate[Anything, ...], Any],
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[..., Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            first: Callable[Concatenate[Context, P], Any],
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            first: Callable[Concatenate[SyncContext, P], Any],
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            first: Step[P, Any] | Callable[P, Any],
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
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
            self, name: str, a: Loose[A, T], b: NextStep[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self, name: str, a: Ctx[P, A, T], b: NextStep[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: SyncCtx[P, A, T], b: NextStep[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Plain[P, A, T], b: NextStep[A, T, T], /, **options: Unpack[ChainOptions]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, E, T],
            f: NextStep[E, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, E, T],
            f: NextStep[E, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, E, T],
            f: NextStep[E, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: NextStep[A, B, T],
            c: NextStep[B, C, T],
            d: NextStep[C, D, T],
            e: NextStep[D, E, T],
            f: NextStep[E, T, T],
            /,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Callable[Concatenate[Anything, ...], Any],
            b: AnyNextStep,
            c: AnyNextStep,
            d: AnyNextStep,
            e: AnyNextStep,
            f: AnyNextStep,
            g: AnyNextStep,
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[..., Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Callable[Concatenate[Context, P], Any],
            b: AnyNextStep,
            c: AnyNextStep,
            d: AnyNextStep,
            e: AnyNextStep,
            f: AnyNextStep,
            g: AnyNextStep,
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Callable[Concatenate[SyncContext, P], Any],
            b: AnyNextStep,
            c: AnyNextStep,
            d: AnyNextStep,
            e: AnyNextStep,
            f: AnyNextStep,
            g: AnyNextStep,
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Step[P, Any] | Callable[P, Any],
            b: AnyNextStep,
            c: AnyNextStep,
            d: AnyNextStep,
            e: AnyNextStep,
            f: AnyNextStep,
            g: AnyNextStep,
            /,
            *steps: AnyNextStep,
            **options: Unpack[ChainOptions],
        ) -> Chain[P, Any]: ...
