"""What a plugin puts around plain functions, in the thread in which a worker runs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

around_thread: ContextVar[Callable[[], AbstractContextManager[object]] | None] = ContextVar(
    "stepwell_around_thread", default=None
)
"""A plugin sets this in `wrap_run`. Each thread that the run uses, for its handler or for a step, enters what it
returns: to tidy up what a library keeps per thread, such as connections. `wrap_run` itself is on the event loop."""


def call_in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in this thread, within what a plugin has put around it."""
    around = around_thread.get()
    if around is None:
        return call(*args, **kwargs)
    with around():
        return call(*args, **kwargs)
