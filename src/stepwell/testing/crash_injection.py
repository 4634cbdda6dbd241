"""Crash injection: kill a worker's process at one of its writes, before, during or just after it.

The crash point and the number of writes are in memory that the worker shares with the fork server.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import signal
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepwell.worker import write_observer
from stepwell.worker.write_observer import Written, ignore

When = Literal["before", "sent", "committed"]
WHENS: tuple[When, ...] = ("before", "sent", "committed")

_WATCHED = ("steps", "outcomes", "transaction", "claim")
_NUMBERS = struct.Struct("qqqq")
_LONGEST_NAME = 200
_MOST_NOTED = 4096


@dataclass(frozen=True, slots=True, order=True)
class CrashPoint:
    """A write of a worker, counted from 1, and when to kill its process.

    The process dies `before` the write is sent, once it is `sent`, or once it is `committed` and before the worker
    reads the reply.
    """

    write: int
    when: When

    def __str__(self) -> str:
        said = {"before": "before it was sent", "sent": "while it was under way", "committed": "when it was committed"}
        return f"write {self.write}, {said[self.when]}"


class SharedPage:
    """The shared memory: the number of this arming, the crash point, the number of writes, the name of the write at
    which the worker died, and for each write whether it was a claim."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NUMBERS.size + _LONGEST_NAME + _MOST_NOTED)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return _NUMBERS.unpack_from(self._memory)

    def arm(self, point: CrashPoint | None) -> int:
        """Set the crash point of the next run, or none, and count writes from 0. Returns the number of this arming."""
        arming = self.numbers[0] + 1
        place = (0, 0) if point is None else (point.write, WHENS.index(point.when))
        _NUMBERS.pack_into(self._memory, 0, arming, *place, 0)
        self.died_at = ""
        return arming

    def count(self, *, claim: bool) -> tuple[int, int]:
        arming, write, when, count = self.numbers
        _NUMBERS.pack_into(self._memory, 0, arming, write, when, count + 1)
        if count < _MOST_NOTED:
            self._memory[_NUMBERS.size + _LONGEST_NAME + count] = claim
        return arming, count + 1

    @property
    def claims(self) -> list[int]:
        notes = self._memory[_NUMBERS.size + _LONGEST_NAME :]
        return [place + 1 for place in range(min(self.numbers[3], _MOST_NOTED)) if notes[place]]

    @property
    def died_at(self) -> str:
        return self._memory[_NUMBERS.size : _NUMBERS.size + _LONGEST_NAME].rstrip(b"\0").decode()

    @died_at.setter
    def died_at(self, said: str) -> None:
        encoded = said.encode()[:_LONGEST_NAME].ljust(_LONGEST_NAME, b"\0")
        self._memory[_NUMBERS.size : _NUMBERS.size + _LONGEST_NAME] = encoded


class CrashInjector:
    """Watches the writes of this process's worker, and kills the process at the crash point."""

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._lock = threading.Lock()  # plain functions commit their transactions in threads
        write_observer.observer = self._observe

    def _observe(self, where: str, text: str) -> Written:
        if where not in _WATCHED:
            return ignore
        name = _name_of(where, text)
        if where == "claim":
            # A claim that finds no job writes nothing, which is known only from its reply.
            return lambda rows: self._claimed(name, rows)
        arming, number = self._count(claim=False)
        if self._is(arming, number, "before"):
            self._die(arming, name)
        if self._is(arming, number, "sent"):
            self._die_soon(arming, name)

        def written(_: Sequence[Any]) -> None:
            if self._is(arming, number, "committed"):
                self._die(arming, name)

        return written

    def _claimed(self, name: str, rows: Sequence[Any]) -> None:
        if rows and name == "claim_jobs":
            arming, number = self._count(claim=True)
            if self._is(arming, number, "committed"):
                self._die(arming, name)

    def _count(self, *, claim: bool) -> tuple[int, int]:
        with self._lock:
            return self._page.count(claim=claim)

    def _is(self, arming: int, number: int, when: When) -> bool:
        armed, write, place, _ = self._page.numbers
        return armed == arming and number == write and WHENS[place] == when

    def _die_soon(self, arming: int, name: str) -> None:
        try:
            # By then this coroutine has sent the statement and waits for the reply.
            asyncio.get_running_loop().call_soon(self._die, arming, name)
        except RuntimeError:
            threading.Thread(target=self._die, args=(arming, name), daemon=True).start()

    def _die(self, arming: int, name: str) -> None:
        self._page.died_at = f"{arming} {name}"
        os.kill(os.getpid(), signal.SIGKILL)


def _name_of(where: str, text: str) -> str:
    found = re.search(r"stepwell\.(\w+)", text)
    return found[1] if found else f"{text} of a {where}"
