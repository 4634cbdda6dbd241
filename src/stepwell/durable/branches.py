"""Run several branches of a handler concurrently.

A branch that has to wait ends with `Suspend`. When no branch runs any more, the job is suspended until one of them can
go on. Each branch has its own keys, so the order in which branches run does not matter. `concurrency` makes `gather`,
`map` and `first` of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from stepwell.durable.exits import StopReplay, Suspend
from stepwell.durable.journal import Journal
from stepwell.durable.saved_error import tag_beside
from stepwell.errors import AmbiguousKey, ConfigError


class Returned(msgspec.Struct, frozen=True):
    """A branch has returned."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """A branch has failed."""

    error: BaseException

    @property
    def ends_run(self) -> bool:
        """Whether this is no error, but a signal that ends the run."""
        return not isinstance(self.error, Exception)


# For a branch that is about to wait, or about to return: in a thread it gets there a little later than one that fails.
_MOMENT = 0.1

BranchEnd = Returned | Raised | Suspend
Start = Callable[[], Awaitable[Any]]


def settle(journal: Journal, ends: Sequence[BranchEnd], *, return_exceptions: bool = False) -> list[Any]:
    """The values of branches, in order. Leaves the handler if a branch waits, and else raises the first error."""
    errors = [end.error for end in ends if isinstance(end, Raised) and not end.ends_run]
    leaving = next((end.error for end in ends if isinstance(end, Raised) and end.ends_run), None)
    if leaving is not None:
        # A replay that collects undos has not found those behind an error, although another branch came to its end.
        raise errors[0] if errors and journal.undoing and isinstance(leaving, StopReplay) else leaving
    waiting = [end for end in ends if isinstance(end, Suspend)]
    if waiting:
        journal.leave(Suspend.all(waiting))
    if errors and not return_exceptions:
        tag_beside(errors[0], errors[1:])
        raise errors[0]
    return [end.value if isinstance(end, Returned) else end.error for end in ends if not isinstance(end, Suspend)]


async def run_branches(
    journal: Journal, starts: Sequence[tuple[str, Start]], limit: int | None = None
) -> list[BranchEnd]:
    """Run each branch under its name, at most `limit` at once. Branches that wait count towards the limit."""
    ends: list[BranchEnd | None] = [None] * len(starts)
    running: dict[asyncio.Task[BranchEnd], int] = {}
    waiting = begun = 0
    try:
        while begun < len(starts) or running:
            while begun < len(starts) and (limit is None or len(running) + waiting < limit):
                running[_begin(journal, *starts[begun])] = begun
                begun += 1
            if not running:
                break  # the rest begins when a waiting branch has ended
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                end = ends[running.pop(task)] = task.result()
                waiting += isinstance(end, Suspend)
    finally:
        await _cancel(running)
    return [end for end in ends if end is not None]


async def run_first(journal: Journal, starts: Sequence[tuple[str, Start]]) -> tuple[int, BranchEnd, Sequence[Suspend]]:
    """Run all branches until one has ended, and cancel the others. If all that are left wait, the end is `Suspend`.
    Also returns what branches wait for."""
    running = {_begin(journal, *start): index for index, start in enumerate(starts)}
    waiting: list[Suspend] = []
    try:
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if any(_has_failed(task.result()) for task in done):
                done, _ = await asyncio.wait(running, timeout=_MOMENT)
            for task in sorted(done, key=lambda task: (_has_failed(task.result()), running[task])):
                end = task.result()
                if not isinstance(end, Suspend):
                    return running[task], end, waiting
                del running[task]
                waiting.append(end)
                if end.at_once:
                    return -1, end, waiting
    finally:
        await _cancel(running)
    return -1, Suspend.all(waiting), waiting


def _has_failed(end: BranchEnd) -> bool:
    # Errors come last: a branch that fails at once in each attempt must not hide that another has its event.
    return isinstance(end, Raised) and not end.ends_run


def _begin(journal: Journal, name: str, start: Start) -> asyncio.Task[BranchEnd]:
    return asyncio.create_task(_run(journal, name, start))


async def _run(journal: Journal, name: str, start: Start) -> BranchEnd:
    branch = journal.enter_branch(name)
    try:
        value = await start()
        if branch.leaving is not None:
            return branch.leaving
        journal.keep_caught(branch)
        return Returned(value)
    except asyncio.CancelledError:
        raise
    except Suspend as suspend:
        return suspend
    except BaseException as error:
        return Raised(error)


async def _cancel(running: dict[asyncio.Task[BranchEnd], int]) -> None:
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def as_start(branch: object) -> Start:
    """A function that starts a branch. Raises `ConfigError` if the branch cannot be awaited."""
    if not isinstance(branch, Awaitable):
        unpack = "; unpack a list with *" if isinstance(branch, list | tuple) else ""
        raise ConfigError(f"a branch must be awaitable, such as ctx.step(...), not {branch!r}{unpack}")

    async def start() -> Any:
        return await branch  # pyright: ignore[reportUnknownVariableType]

    return start


def keys_of(items: Sequence[Any], key: Callable[[Any], str] | None) -> list[str]:
    """The names of a map's branches: by `key`, else the items if all are text or ints, else their indexes."""
    if key is not None:
        names = [str(key(item)) for item in items]
    elif all(isinstance(item, str | int) for item in items):
        names = [str(item) for item in items]
    else:
        return [str(index) for index in range(len(items))]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise AmbiguousKey(
            f"two items of ctx.map have the key {twice!r}: give key=, a function that tells each from the others"
        )
    for name in names:
        if not 1 <= len(name) <= 100 or not name.isprintable():
            raise AmbiguousKey(f"the key {name[:100]!r} of an item of ctx.map must be 1 to 100 printable characters")
    return names
