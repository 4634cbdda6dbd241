"""Keep the worker's background loops going: only errors that a person must fix end the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from stepwell.errors import StepwellError
from stepwell.errors.text import error_line_of, format_traceback
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import LoopFailed

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# After this long without an error the next error is the first again.
_GOOD_SPELL = 60.0
_CANCEL_AGAIN = 0.2


async def keep_going(name: str, loop: Callable[[], Awaitable[None]], events: EventBus) -> None:
    """Run a loop until it ends. After an error log it, pause, and run the loop again; pauses grow while errors go on. A
    `StepwellError` is raised: its message tells a person what to fix."""
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
            report_failure(events, name, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return


def report_failure(events: EventBus, name: str, error: Exception, pause: float = 0.0) -> None:
    trace = format_traceback(error, error.__traceback__)
    events.emit(LoopFailed(name, error_line_of(error), pause, trace))


def any_failed(loops: Collection[asyncio.Task[None]]) -> bool:
    """Whether one has raised an error. Ctrl-C is none, and at the end of a script asyncio cancels every task."""
    ended = [loop for loop in loops if loop.done() and not loop.cancelled()]
    return any(isinstance(loop.exception(), Exception) for loop in ended)


def is_of(error: BaseException, loops: Collection[asyncio.Task[None]]) -> bool:
    """Whether one of them has raised this error."""
    return any(loop.exception() is error for loop in loops if loop.done() and not loop.cancelled())


async def end_loops(loops: Collection[asyncio.Task[None]]) -> None:
    """Cancel loops until they end: before Python 3.12 `asyncio.wait_for`, which psycopg uses, may swallow a cancel."""
    while left := [loop for loop in loops if not loop.done()]:
        for loop in left:
            loop.cancel()
        await asyncio.wait(left, timeout=_CANCEL_AGAIN)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return first_error(error)  # pyright: ignore[reportUnknownArgumentType]
        return error
    return group
