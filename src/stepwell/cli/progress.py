"""How far a long command is: a bar on a terminal, and a line now and then where there is none.

It goes to stderr, so that stdout has only the answer. A command that ends within half a second shows nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepwell.cli.output import clean

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_QUIET = 0.5
"""Seconds before the bar appears."""
_LINE_EVERY = 5.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    """How much is done, and of how much if that is known. Only `progress` makes one."""

    def __init__(
        self, title: str, total: int | None, show: Callable[[Progress], None], clock: Callable[[], float]
    ) -> None:
        self.title = clean(title)
        self.total = total
        self.done = 0
        self._show = show
        self._clock = clock
        self.started = clock()

    def advance(self, n: int = 1) -> None:
        """So much more is done."""
        self.update(self.done + n)

    def update(self, done: int, total: int | None = None) -> None:
        """So much is done by now. `total` corrects the total."""
        self.done = done
        if total is not None:
            self.total = total
        self._show(self)

    def now(self, title: str) -> None:
        """Say what the command does from now on."""
        self.title = clean(title)
        self._show(self)

    @property
    def seconds(self) -> float:
        return self._clock() - self.started

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.title}: {self.done:,} so far" if self.done else f"{self.title} ..."
        share = f", {100 * min(self.done, self.total) // self.total}%" if self.total else ""
        return f"{self.title}: {self.done:,} of {self.total:,}{share}"


@contextmanager
def progress(
    title: str, total: int | None = None, *, clock: Callable[[], float] = time.monotonic
) -> Generator[Progress]:
    """Show how far the block is. It calls `advance` or `update`. Without a total, the bar only shows that it goes on.

    On a terminal the bar is removed at the end: the command then prints its own summary.
    """
    shown = _Bar() if sys.stderr.isatty() else _Lines(clock)
    try:
        yield Progress(title, total, shown.show, clock)
    finally:
        shown.end()


class _Lines:
    """A line on stderr every few seconds, for logs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock() + _LINE_EVERY

    def show(self, progress: Progress) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + _LINE_EVERY
            sys.stderr.write(f"{progress}\n")
            sys.stderr.flush()

    def end(self) -> None: ...


class _Bar:
    """A bar on stderr, begun only when the command has taken a while."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._row: Any = None

    def show(self, progress: Progress) -> None:
        if self._bar is None:
            if progress.seconds < _QUIET:
                return
            self._bar = _new_bar()
            self._row = self._bar.add_task(progress.title, total=progress.total, count=_count(progress))
            self._bar.start()
        self._bar.update(
            self._row, completed=progress.done, total=progress.total, description=progress.title, count=_count(progress)
        )

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _count(progress: Progress) -> str:
    return f"{progress.done:,}" + ("" if progress.total is None else f" of {progress.total:,}")


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        # Titles may hold names of queues and tasks, which are no markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True, markup=False, highlight=False, emoji=False),
        transient=True,
    )
