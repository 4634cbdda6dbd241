"""What a type checker knows of a chain: the arguments of the first function, the result of the last, and that each
takes what the one before it hands on.

Pyright solves that for up to six steps. Mypy does not solve for what a function may return as it is, awaited or in a
`Next`: it knows only the arguments. When the chain is made, what does not fit is refused either way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

from stepwell.callable_task import Anything
from stepwell.chain import Chain, Step
from stepwell.context import Context
from stepwell.duration import Duration
from stepwell.moves import Done, Next
from stepwell.policy import Keep
from stepwell.retry import Retry
from stepwell.sync_context import SyncContext

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


class Options(TypedDict, total=False):
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

Link: TypeAlias = (
    Callable[[A], Returns[B, T]]
    | Callable[[Context, A], Returns[B, T]]
    | Callable[[SyncContext, A], Returns[B, T]]
    | Later[A, Returns[B, T]]
)
"""A step that is given an A."""

AnyLink: TypeAlias = Callable[..., Any] | Step[..., Any]


if MYPY:

    class MakeChain(Protocol):  # pyright: ignore[reportRedeclaration]
        """`app.chain`."""

        @overload
        def __call__(
            self,
            name: str,
            first: Callable[Concatenate[Anything, ...], Any],
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[..., Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            first: Callable[Concatenate[Context, P], Any],
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            first: Callable[Concatenate[SyncContext, P], Any],
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self, name: str, first: Step[P, Any] | Callable[P, Any], /, *steps: AnyLink, **options: Unpack[Options]
        ) -> Chain[P, Any]: ...

else:

    class MakeChain(Protocol):
        """`app.chain`."""

        @overload
        def __call__(self, name: str, a: Loose[T, T], /, **options: Unpack[Options]) -> Chain[..., T]: ...
        @overload
        def __call__(self, name: str, a: Ctx[P, T, T], /, **options: Unpack[Options]) -> Chain[P, T]: ...
        @overload
        def __call__(self, name: str, a: SyncCtx[P, T, T], /, **options: Unpack[Options]) -> Chain[P, T]: ...
        @overload
        def __call__(self, name: str, a: Plain[P, T, T], /, **options: Unpack[Options]) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Loose[A, T], b: Link[A, T, T], /, **options: Unpack[Options]
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self, name: str, a: Ctx[P, A, T], b: Link[A, T, T], /, **options: Unpack[Options]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: SyncCtx[P, A, T], b: Link[A, T, T], /, **options: Unpack[Options]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Plain[P, A, T], b: Link[A, T, T], /, **options: Unpack[Options]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Loose[A, T], b: Link[A, B, T], c: Link[B, T, T], /, **options: Unpack[Options]
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self, name: str, a: Ctx[P, A, T], b: Link[A, B, T], c: Link[B, T, T], /, **options: Unpack[Options]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: SyncCtx[P, A, T], b: Link[A, B, T], c: Link[B, T, T], /, **options: Unpack[Options]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self, name: str, a: Plain[P, A, T], b: Link[A, B, T], c: Link[B, T, T], /, **options: Unpack[Options]
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Loose[A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, E, T],
            f: Link[E, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[..., T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Ctx[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, E, T],
            f: Link[E, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: SyncCtx[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, E, T],
            f: Link[E, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Plain[P, A, T],
            b: Link[A, B, T],
            c: Link[B, C, T],
            d: Link[C, D, T],
            e: Link[D, E, T],
            f: Link[E, T, T],
            /,
            **options: Unpack[Options],
        ) -> Chain[P, T]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Callable[Concatenate[Anything, ...], Any],
            b: AnyLink,
            c: AnyLink,
            d: AnyLink,
            e: AnyLink,
            f: AnyLink,
            g: AnyLink,
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[..., Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Callable[Concatenate[Context, P], Any],
            b: AnyLink,
            c: AnyLink,
            d: AnyLink,
            e: AnyLink,
            f: AnyLink,
            g: AnyLink,
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Callable[Concatenate[SyncContext, P], Any],
            b: AnyLink,
            c: AnyLink,
            d: AnyLink,
            e: AnyLink,
            f: AnyLink,
            g: AnyLink,
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[P, Any]: ...
        @overload
        def __call__(
            self,
            name: str,
            a: Step[P, Any] | Callable[P, Any],
            b: AnyLink,
            c: AnyLink,
            d: AnyLink,
            e: AnyLink,
            f: AnyLink,
            g: AnyLink,
            /,
            *steps: AnyLink,
            **options: Unpack[Options],
        ) -> Chain[P, Any]: ...
