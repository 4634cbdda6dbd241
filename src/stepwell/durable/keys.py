"""Keys of steps: `branch/name#n`.

The branch is the part of a `gather`, `map` or `first` in which a step is taken, so branches that run in another order
still find their own steps.
"""

from __future__ import annotations

import asyncio
import re
import threading
from threading import get_ident
from typing import Any

import msgspec

from stepwell.durable.exits import Suspend
from stepwell.errors import AmbiguousKey, ConfigError
from stepwell.values.bounds import check_name

LONGEST_KEY = 500
_TRY = re.compile(r"~\d+$")


class NameInUse(msgspec.Struct):
    """How many steps have taken a name, and the task or thread that took it last."""

    user: Any
    count: int = 1


class Branch(msgspec.Struct):
    """One line of execution in which keys are counted: the handler itself, or a branch of it."""

    prefix: str = ""
    names: dict[str, NameInUse] = {}
    last: str | None = None
    """The key of the branch's latest step."""
    leaving: Suspend | None = None
    """The suspension that left this branch, even if the handler caught it."""


class StepTaker:
    """Finds the asyncio task or the thread that is taking a step. Made on the event loop of most handlers."""

    __slots__ = ("_loop", "_thread")

    def __init__(self) -> None:
        self._loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        self._thread = get_ident()

    def current(self) -> Any:
        # Called for each step, and looking up the loop each time is a good part of a step's cost. Another thread may
        # have no loop.
        if self._loop is not None and get_ident() == self._thread:
            return asyncio.current_task(self._loop)
        loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        return threading.current_thread() if loop is None else asyncio.current_task(loop)


def number(branch: Branch, name: str, taker: Any, task: str) -> str:
    """A name that is unique in its branch: `name`, then `name#2` and so on. Raises `AmbiguousKey` if concurrent tasks
    or threads use the same name, since their order may differ in the next run."""
    used = branch.names.get(name)
    if used is None:
        branch.names[name] = NameInUse(taker)
        return name
    if used.user is not taker:
        if _is_alive(used.user):
            raise AmbiguousKey(
                f"two steps named {name!r} of task {task!r} run concurrently, and a replay could not tell them apart: "
                "run them with ctx.gather or ctx.map, or give each a key="
            )
        used.user = taker
    used.count += 1
    return f"{name}#{used.count}"


def next_number(branch: Branch, name: str) -> str:
    """What `number` would return."""
    used = branch.names.get(name)
    return name if used is None else f"{name}#{used.count + 1}"


def check_own_key(key: str) -> str:
    """A `key=` that a handler may choose. Raises `ConfigError` for keys that Stepwell makes itself."""
    if key.startswith("undo:") or _TRY.search(key):
        raise ConfigError(f"key is {key!r}: Stepwell reserves keys that begin with 'undo:' or end like '~1'")
    return check_name(key, "key")


def _is_alive(user: Any) -> bool:
    return user.is_alive() if isinstance(user, threading.Thread) else not user.done()
