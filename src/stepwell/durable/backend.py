"""The functions that durable execution needs from a worker, which fills them in: this package knows no SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from stepwell.durable.keys import Caller
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob
from stepwell.values.step import NewStep

if TYPE_CHECKING:
    from stepwell.values.job import NewJob

Drift = Literal["warn", "fail", "rerun"]
"""How a job treats a saved step that is called with other arguments: it takes the saved value and logs a warning, fails
the attempt, or runs the step again."""

Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class StepBackend:
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
    was_saved: Callable[[ClaimedJob, str], Awaitable[bool]]
    """Whether a transaction whose commit is in doubt has saved its step."""
    transaction: Callable[[bool], AbstractAsyncContextManager[Connection]]
    """Open a transaction on an `AsyncConnection`, or if True on a `Connection`, without suspending the coroutine."""
    save_in: Callable[[Connection, ClaimedJob, Sequence[NewStep]], Awaitable[None]]
    """Save steps in that transaction."""


@dataclass(frozen=True, slots=True)
class Durability:
    """How the runs of one task save their steps. `always_replay` suspends a run after each saved step, for tests."""

    backend: StepBackend
    drift: Drift = "warn"
    always_replay: bool = False
    events: EventBus = field(default_factory=EventBus)
    caller: Caller = field(default_factory=Caller)
