"""The functions that durable execution needs from a worker, which fills them in: this package knows no SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from stepwell.durable.keys import StepTaker
from stepwell.plugins.step import StepRun
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob
from stepwell.values.sealing import PLAIN, Sealer
from stepwell.values.step import NewStep

if TYPE_CHECKING:
    from stepwell.values.job import NewJob

Drift = Literal["warn", "fail", "rerun"]
"""How a job treats a saved step that is called with other arguments: it takes the saved value and logs a warning, fails
the attempt, or runs the step again."""

Sessions: TypeAlias = Callable[..., Any]
"""Makes sessions, as a sessionmaker of SQLAlchemy does."""


class OpenTransaction(Protocol):
    """The transaction of a handler or of a step. If that is a plain function, no method suspends."""

    @property
    def given(self) -> Any:
        """The connection or session that the user's code gets."""
        ...

    @property
    def pid(self) -> int:
        """The process of its session in the database."""
        ...

    @property
    def aborted(self) -> bool:
        """Whether it is known that a statement has failed in it, so that it can only be rolled back."""
        ...

    async def ended(self) -> bool:
        """Whether the user's code has committed or rolled it back. A session first sends what it holds back."""
        ...

    async def run(self, query: Any) -> list[Any]:
        """Run a query of the worker's in it."""
        ...

    def leaves_in_doubt(self, error: BaseException) -> bool:
        """Whether it is unknown, after this error at its end, if it was committed."""
        ...


class StepBackend(msgspec.Struct, frozen=True):
    """One worker's storage for steps. Every write is fenced by the job's epoch: a refused one raises `Lost`."""

    max_value_size: int
    loop: asyncio.AbstractEventLoop
    """The worker's event loop, on which the functions below are called."""
    run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    save: Callable[[ClaimedJob, Sequence[NewStep]], Awaitable[datetime]]
    """Save steps and return the database's time. If the caller is cancelled, they are saved all the same."""
    spawn: Callable[[ClaimedJob, Sequence[tuple[NewStep, NewJob]]], Awaitable[list[str]]]
    """Enqueue children together with the steps that spawn them, and return their ids."""
    advance: Callable[[ClaimedJob, str | None, str, str, int], Awaitable[None]]
    """Move a job of a chain or machine on to its next step."""
    read_large: Callable[[ClaimedJob, str], Awaitable[str]]
    """Read a step's value that is too large to come with the claim."""
    cancel: Callable[[list[str]], Awaitable[None]]
    """Cancel children whose branch lost a `ctx.first`."""
    forget_waits: Callable[[ClaimedJob, list[str]], Awaitable[None]]
    save_waits: Callable[[ClaimedJob, str], Awaitable[None]]
    """Save what branches wait for that an error has cut off; given as for stepwell.suspend."""
    was_saved: Callable[[ClaimedJob, str], Awaitable[bool]]
    """Whether a transaction whose commit is in doubt has saved its step."""
    transaction: Callable[[bool, Sessions | None], AbstractAsyncContextManager[OpenTransaction]]
    """Open a transaction: on an `AsyncConnection`, or if True on a `Connection`, without suspending the coroutine; or
    in a session of the factory."""
    save_in: Callable[[OpenTransaction, ClaimedJob, Sequence[NewStep]], Awaitable[None]]
    """Save steps in that transaction."""
    wrap_step: Callable[[StepRun], AbstractContextManager[None]] | None = None
    """What plugins do around the function of a step; None: nothing."""
    sealer: Sealer = PLAIN
    """Seals the values of steps, and opens them again."""


class Durability(msgspec.Struct, frozen=True):
    """How the runs of one task save their steps. `always_replay` suspends a run after each saved step, for tests."""

    backend: StepBackend
    drift: Drift = "warn"
    always_replay: bool = False
    events: EventBus = msgspec.field(default_factory=EventBus)
    taker: StepTaker = msgspec.field(default_factory=StepTaker)
