"""Replay every durable job after each of its steps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

_VARIABLE = "STEPWELL_ALWAYS_REPLAY"


@contextlib.contextmanager
def always_replay() -> Generator[None]:
    """Within this block, new workers suspend every durable job after each step and replay it.

    A handler that does not reach the same steps in each run then fails early. Worker processes that are started in the
    block do the same.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
