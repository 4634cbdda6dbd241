"""What an app has its workers call before the first claim and after the last handler has ended."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Sequence

from stepwell.error_text import error_message, error_name
from stepwell.errors import StepwellError
from stepwell.events import Events, HookFailed, HookSlow
from stepwell.hook import Hook, name_of

_SLOW = 10.0
# A client that cannot be closed must not keep the worker from its end.
STOP_PATIENCE = 10.0


class Hooks:
    """The hooks of one run of a worker. The k-th stop hook is taken for the counterpart of the k-th start hook: if that
    did not return, it is not called."""

    def __init__(self, starts: Sequence[Hook], stops: Sequence[Hook], events: Events) -> None:
        self._starts = starts
        self._stops = stops
        self._events = events
        self._started = 0

    async def start(self, stop_asked: asyncio.Event) -> bool:
        """Call the start hooks in order, in this task: so what they set in contextvars is there for handlers. One that
        is under way when the worker is asked to stop is cancelled. False: it was asked."""
        me = asyncio.current_task()
        assert me is not None
        watch = asyncio.create_task(stop_asked.wait())
        cancel: Callable[[object], object] = lambda _: me.cancel()  # noqa: E731 to be taken away again
        watch.add_done_callback(cancel)
        try:
            for hook in self._starts:
                if stop_asked.is_set():
                    return False
                await self._begin(hook)
                self._started += 1
            return not stop_asked.is_set()
        except asyncio.CancelledError:
            if not watch.done():
                raise  # somebody else did it
            me.uncancel()
            return False
        finally:
            watch.remove_done_callback(cancel)
            watch.cancel()

    async def stop(self) -> None:
        """Call the stop hooks, the last first, each whatever became of the others."""
        all_started = self._started == len(self._starts)
        cancelled: asyncio.CancelledError | None = None
        for hook in reversed(self._stops if all_started else self._stops[: self._started]):
            limit = asyncio.timeout(STOP_PATIENCE)
            try:
                async with limit:
                    await _call(hook)
            except asyncio.CancelledError as error:
                cancelled = error  # the others have their turn first
            except Exception as error:
                said = f"it has not ended within {STOP_PATIENCE:g} s" if limit.expired() else _described(error)
                self._events.emit(HookFailed("on_worker_stop", name_of(hook), said, _trace(error)))
        if cancelled is not None:
            raise cancelled

    async def _begin(self, hook: Hook) -> None:
        slow = HookSlow(name_of(hook), _SLOW)
        timer = asyncio.get_running_loop().call_later(_SLOW, self._events.emit, slow)
        try:
            await _call(hook)
        except Exception as error:
            self._events.emit(HookFailed("on_worker_start", name_of(hook), _described(error), _trace(error)))
            raise StepwellError(
                f"the worker did not start: its on_worker_start hook {name_of(hook)} failed: {_described(error)}"
            ) from error
        finally:
            timer.cancel()


async def _call(hook: Hook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result


def _described(error: Exception) -> str:
    return f"{error_name(error)}: {error_message(error)}"


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
