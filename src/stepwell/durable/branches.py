"""Run several branches of a handler side by side, in async code: `gather`, `map` and `first`.

A branch that has to wait leaves by `Suspend`; when none is left that runs, the job is suspended until one of them can
go on. So the order in which branches take turns does not matter, and each finds its own steps again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepwell.durable.journal import Journal, Suspend
from stepwell.durable.saved_error import tag_beside
from stepwell.errors import AmbiguousKey, ConfigError


class First(NamedTuple):
    """Which branch of `ctx.first` came first, from 0, and what it returned."""

    branch: int
    value: Any


@dataclass(frozen=True, slots=True)
class Returned:
    """A branch has ended."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A branch has failed."""

    error: BaseException


BranchEnd = Returned | Raised | Suspend
Start = Callable[[], Awaitable[Any]]


def settle(ends: Sequence[BranchEnd], *, return_exceptions: bool) -> list[Any]:
    """What a gather returns: values in order. It suspends if a branch waits, and raises the first error in order."""
    leaving = next((end.error for end in ends if isinstance(end, Raised) and leaves(end.error)), None)
    if leaving is not None:
        raise leaving
    waiting = [end for end in ends if isinstance(end, Suspend)]
    if waiting:
        raise Suspend.all(waiting)
    errors = [end.error for end in ends if isinstance(end, Raised)]
    if errors and not return_exceptions:
        tag_beside(errors[0], errors[1:])
        raise errors[0]
    return [end.value if isinstance(end, Returned) else end.error for end in ends if not isinstance(end, Suspend)]


def leaves(error: BaseException) -> bool:
    """Whether it is no error, but ends the run."""
    return not isinstance(error, Exception)


async def run_branches(
    journal: Journal, starts: Sequence[tuple[str, Start]], limit: int | None = None
) -> list[BranchEnd]:
    """Run each under the scope of its name, no more than `limit` at once; those that wait count, too."""
    ends: list[BranchEnd | None] = [None] * len(starts)
    running: dict[asyncio.Task[BranchEnd], int] = {}
    waiting = begun = 0
    try:
        while begun < len(starts) or running:
            while begun < len(starts) and (limit is None or len(running) + waiting < limit):
                running[_begin(journal, *starts[begun])] = begun
                begun += 1
            if not running:
                break  # the others' turn comes when one that waits has ended
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                end = ends[running.pop(task)] = task.result()
                waiting += isinstance(end, Suspend)
    finally:
        await _cancel(running)
    return [end for end in ends if end is not None]


async def run_first(journal: Journal, starts: Sequence[tuple[str, Start]]) -> tuple[int, BranchEnd]:
    """Run all until one has ended; the others are cancelled. If all that are left wait, the end is a `Suspend`."""
    running = {_begin(journal, *start): index for index, start in enumerate(starts)}
    waiting: list[Suspend] = []
    try:
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: running[task]):
                end = task.result()
                if not isinstance(end, Suspend):
                    return running[task], end
                del running[task]
                waiting.append(end)
                if end.at_once:
                    return -1, end
    finally:
        await _cancel(running)
    return -1, Suspend.all(waiting)


def _begin(journal: Journal, name: str, start: Start) -> asyncio.Task[BranchEnd]:
    return asyncio.create_task(_branch(journal, name, start))


async def _branch(journal: Journal, name: str, start: Start) -> BranchEnd:
    scope = journal.in_branch(name)
    try:
        value = await start()
        return Returned(value) if scope.leaving is None else scope.leaving
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
    """A branch as it is given: something to be awaited."""
    if not isinstance(branch, Awaitable):
        unpack = "; what is in a list is given by *" if isinstance(branch, list | tuple) else ""
        raise ConfigError(f"a branch is something to be awaited, such as ctx.step(...), not {branch!r}{unpack}")

    async def start() -> Any:
        return await branch  # pyright: ignore[reportUnknownVariableType]

    return start


def close_unused(branches: Sequence[object]) -> None:
    """Let go of coroutines that will not be run."""
    for branch in branches:
        if isinstance(branch, Coroutine):
            branch.close()


def keys_of(items: Sequence[Any], key: Callable[[Any], str] | None) -> list[str]:
    """The names of the branches of a map: what `key` says of each item, else text and whole numbers themselves, else
    their places."""
    if key is not None:
        names = [str(key(item)) for item in items]
    elif all(isinstance(item, str | int) for item in items):
        names = [str(item) for item in items]
    else:
        return [str(place) for place in range(len(items))]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise AmbiguousKey(
            f"two items of ctx.map have the key {twice!r}: give key=, a function that tells each from the others"
        )
    for name in names:
        if not 1 <= len(name) <= 100 or not name.isprintable():
            raise AmbiguousKey(f"the key {name[:100]!r} of an item of ctx.map must be 1 to 100 printable characters")
    return names
