"""End by Ctrl-C and by SIGTERM alike: with all that was started, and without a traceback."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType


def interruptible(main: Callable[[], None]) -> None:
    """Call it; a signal is an exception in it, so that everything is cleaned up on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
