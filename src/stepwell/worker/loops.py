"""Keep a loop of the worker going: it ends the worker only with what a person must fix."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from stepwell.error_text import error_line_of, format_traceback
from stepwell.errors import StepwellError
from stepwell.telemetry.events import Events, LoopFailed

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# After so long without an error the next one is the first again.
_GOOD_SPELL = 60.0


async def keep_going(name: str, loop: Callable[[], Awaitable[None]], events: Events) -> None:
    """Run a loop until it ends. After an error say so, pause, and run it again; pauses grow while errors go on.

    A `StepwellError` is passed on: what is explained is for a person to mend.
    """
    clock = asyncio.get_running_loop().time
    pause = _FIRST_PAUSE
    while True:
        began = clock()
        try:
            await loop()
        except StepwellError:
            raise
        except Exception as error:
            pause = _FIRST_PAUSE if clock() - began > _GOOD_SPELL else pause
            tell(events, name, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return


def tell(events: Events, name: str, error: Exception, pause: float = 0.0) -> None:
    """Say that a loop failed and goes on."""
    trace = format_traceback(error, error.__traceback__)
    events.emit(LoopFailed(name, error_line_of(error), pause, trace))
