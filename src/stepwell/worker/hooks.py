"""The functions that an app has its workers call before the first claim and after the last handler has ended."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence

from stepwell.app.worker_hook import WorkerHook, name_of
from stepwell.errors import StepwellError
from stepwell.errors.text import error_line_of, format_traceback
from stepwell.resources.opened import ResourceHook
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import HookFailed, HookSlow

_SLOW = 10.0
# A client that cannot be closed must not keep the worker from ending.
STOP_PATIENCE = 10.0


class Hooks:
    """The hooks of one run. The k-th stop hook belongs to the k-th start hook, and is called only if that returned."""

    def __init__(self, starts: Sequence[WorkerHook], stops: Sequence[WorkerHook], events: EventBus) -> None:
        self._starts = starts
        self._stops = stops
        self._events = events
        self._started = 0

    async def start(self, stop_asked: asyncio.Event) -> bool:
        """Call the start hooks in order, in this task, so that handlers see the contextvars they set. If the worker is
        asked to stop, cancel the hook that runs and return False."""
        loop = asyncio.get_running_loop()
        try:
            # A scope whose deadline is set by the stop: it cancels this task only while it is open, and distinguishes
            # its own cancel from others.
            async with asyncio.timeout(None) as scope:

                async def close_scope() -> None:
                    await stop_asked.wait()
                    scope.reschedule(loop.time())

                watch = asyncio.create_task(close_scope())
                try:
                    for hook in self._starts:
                        if stop_asked.is_set():
                            break
                        await self._begin(hook)
                        self._started += 1
                finally:
                    watch.cancel()
        except TimeoutError:  # only the scope's: a hook's own is wrapped
            return False
        return not stop_asked.is_set()

    async def stop(self) -> None:
        all_started = self._started == len(self._starts)
        cancelled: asyncio.CancelledError | None = None
        for hook in reversed(self._stops if all_started else self._stops[: self._started]):
            limit = asyncio.timeout(STOP_PATIENCE)
            try:
                async with limit:
                    await _call(hook)
            except asyncio.CancelledError as error:
                cancelled = error  # call the others first
            except Exception as error:
                reason = f"it has not ended within {STOP_PATIENCE:g} s" if limit.expired() else error_line_of(error)
                self._failed("on_worker_stop", hook, reason, error)
        if cancelled is not None:
            raise cancelled

    async def _begin(self, hook: WorkerHook) -> None:
        slow = HookSlow(name_of(hook), _SLOW)
        timer = asyncio.get_running_loop().call_later(_SLOW, self._events.emit, slow)
        try:
            await _call(hook)
        except Exception as error:
            self._failed("on_worker_start", hook, error_line_of(error), error)
            what = "resource" if isinstance(hook, ResourceHook) else "on_worker_start hook"
            raise StepwellError(
                f"the worker did not start: its {what} {name_of(hook)} failed: {error_line_of(error)}"
            ) from error
        finally:
            timer.cancel()

    def _failed(self, kind: str, hook: WorkerHook, reason: str, error: Exception) -> None:
        kind = "resource" if isinstance(hook, ResourceHook) else kind
        self._events.emit(HookFailed(kind, name_of(hook), reason, format_traceback(error, error.__traceback__)))


async def _call(hook: WorkerHook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result
