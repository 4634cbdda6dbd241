"""Which threads run the code of which run, so that somebody who asks for the stack of a run can find them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from stepwell.durable.log_filter import LoggedBatch, LoggedRun, current_run
from stepwell.plugins.thread import call_in_thread

P = ParamSpec("P")
T = TypeVar("T")

# A thread runs the code of one run at a time.
_runs: dict[int, LoggedRun | LoggedBatch] = {}


def call_noted(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of the present run in this thread, as `call_in_thread` does."""
    run = current_run()
    if run is None:
        return call_in_thread(call, *args, **kwargs)
    thread = threading.get_ident()
    _runs[thread] = run
    try:
        return call_in_thread(call, *args, **kwargs)
    finally:
        del _runs[thread]


def threads_of(run: LoggedRun | LoggedBatch) -> list[int]:
    """The threads that run code of this run now. Any thread may ask."""
    return [thread for thread, other in list(_runs.items()) if other is run]
