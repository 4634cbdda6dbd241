"""Run every durable job anew after each of its steps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

_VARIABLE = "STEPWELL_ALWAYS_REPLAY"


@contextlib.contextmanager
def always_replay() -> Generator[None]:
    """Workers that are made within suspend every durable job after each step and run it anew, so that a handler which
    does not come to the same steps in each run does not get far. Worker processes that are started within do so,
    too."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
