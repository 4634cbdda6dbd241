"""The stack of a running handler as text, for somebody who asks where it is. Any thread may take it.

It shows places in the code, and never the values of variables.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterable
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, cast

from stepwell.durable.log_filter import LoggedBatch, LoggedRun, run_in
from stepwell.durable.run_threads import threads_of
from stepwell.errors.text import storable

_MOST_FRAMES = 60
_MOST_TASKS = 10
_MOST_TEXT = 32_000
_DEEPEST = 1000

# The code of Stepwell that calls handlers: the frames up to its last one say nothing about a handler.
_ROOT = str(Path(__file__).parents[1])
_CALLERS = tuple(
    f"{_ROOT}/{place}"
    for place in (
        "worker/runner.py",
        "worker/handler_calls.py",
        "worker/batches/batch_runs.py",
        "worker/wrapped_run.py",
        "execution/",
        "plugins/thread.py",
        "durable/run_threads.py",
    )
)

# A stack: its frames from the outermost to the innermost, each with its line.
Stack = list[tuple[FrameType, int]]


def stack_of(
    run: LoggedRun | LoggedBatch, handler: asyncio.Task[Any] | None, loop: asyncio.AbstractEventLoop, loop_thread: int
) -> str:
    """Where the code of a run is now: in its tasks on the event loop, and in threads."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    threads = [frames[thread] for thread in threads_of(run) if thread in frames]
    parts = [_section("in a thread", _of_thread(frame)) for frame in threads]
    current = asyncio.current_task(loop)
    for task in _tasks_of(run, handler, loop)[:_MOST_TASKS]:
        what = "on the event loop" if task is handler else f"in the asyncio task {task.get_name()!r}"
        if task is current:
            # It runs at this moment. If it does so for long, it blocks all other jobs of the worker.
            stack = _of_thread(frames[loop_thread]) if loop_thread in frames else []
            parts.append(_section(f"{what}, running at this moment", stack))
        elif not task.done():
            parts.append(_section(f"{what}, waiting", _awaited(task)))
    return (
        storable("\n".join(part for part in parts if part))[:_MOST_TEXT] or "its handler has not started, or has ended"
    )


def _tasks_of(
    run: LoggedRun | LoggedBatch, handler: asyncio.Task[Any] | None, loop: asyncio.AbstractEventLoop
) -> list[asyncio.Task[Any]]:
    """The handler's own task first, then those that it has started, as far as this Python tells."""
    try:
        others = [task for task in asyncio.all_tasks(loop) if task is not handler and _runs(task, run)]
    except RuntimeError:  # the set of tasks changed all the time
        others = []
    return [*([handler] if handler is not None else []), *others]


def _runs(task: asyncio.Task[Any], run: LoggedRun | LoggedBatch) -> bool:
    get_context = getattr(task, "get_context", None)  # since Python 3.12
    return get_context is not None and run_in(cast("Context", get_context())) is run


def _awaited(task: asyncio.Task[Any]) -> Stack:
    """The frames of a suspended task, along what each coroutine awaits."""
    stack: Stack = []
    waits: Any = task.get_coro()
    for _ in range(_DEEPEST):
        frame = _first(waits, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            stack.append((frame, frame.f_lineno))
        waits = _first(waits, "cr_await", "gi_yieldfrom", "ag_await")
        if waits is None:
            break
    return stack


def _first(waits: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(waits, name, None)) is not None), None)


def _of_thread(frame: FrameType) -> Stack:
    return list(traceback.walk_stack(frame))[::-1]


def _section(where: str, stack: Stack) -> str:
    shown = list(_of_handler(stack))
    if not shown:
        return ""
    left_out = len(shown) - _MOST_FRAMES
    summary = traceback.StackSummary.extract(iter(shown[-_MOST_FRAMES:]), lookup_lines=True, capture_locals=False)
    before = f"  ({left_out} outer frames are left out)\n" if left_out > 0 else ""
    return f"{where} (the innermost call last):\n{before}{''.join(summary.format())}"


def _of_handler(stack: Stack) -> Iterable[tuple[FrameType, int]]:
    """The frames from the handler on. A task or thread that has none of Stepwell's own is shown as a whole."""
    last = max((place for place, (frame, _) in enumerate(stack) if _calls_handlers(frame)), default=-1)
    # The innermost frame may be Stepwell's own, when the handler waits for it.
    return stack[last + 1 :] or stack[-1:]


def _calls_handlers(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_CALLERS)
