"""End a worker's process at one of its writes: before it is sent, when it is under way, or when it is committed and
nobody has heard of that yet.

Where, and how many writes there were, stands in memory that the process shares with the one that forked it.
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
from stepwell.worker.write_observer import Written

When = Literal["before", "sent", "committed"]
WHENS: tuple[When, ...] = ("before", "sent", "committed")

_WATCHED = ("steps", "outcomes", "transaction", "claim")
_NUMBERS = struct.Struct("qqqq")
_LONGEST_NAME = 200
_MOST_NOTED = 4096


@dataclass(frozen=True, slots=True, order=True)
class CrashPoint:
    """Which write of a worker, from 1, and when its process is killed: `before` it is sent, when it is `sent` and not
    waited for, or when it is `committed` and its reply has not been read by anybody."""

    write: int
    when: When

    def __str__(self) -> str:
        said = {"before": "before it was sent", "sent": "while it was under way", "committed": "when it was committed"}
        return f"write {self.write}, {said[self.when]}"


class Page:
    """The shared memory: which arming this is, at which write and when to die, how many writes there were, the last
    words, and of each write whether it was a claim."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NUMBERS.size + _LONGEST_NAME + _MOST_NOTED)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return _NUMBERS.unpack_from(self._memory)

    def arm(self, point: CrashPoint | None) -> int:
        """Die there, in the run to come; None: nowhere. Writes are counted from here. Returns which arming it is."""
        arming = self.numbers[0] + 1
        place = (0, 0) if point is None else (point.write, WHENS.index(point.when))
        _NUMBERS.pack_into(self._memory, 0, arming, *place, 0)
        self.last_words = ""
        return arming

    def count(self, *, claim: bool) -> tuple[int, int]:
        """One more write: which arming, and which number it has."""
        arming, write, when, count = self.numbers
        _NUMBERS.pack_into(self._memory, 0, arming, write, when, count + 1)
        if count < _MOST_NOTED:
            self._memory[_NUMBERS.size + _LONGEST_NAME + count] = claim
        return arming, count + 1

    @property
    def claims(self) -> list[int]:
        """The numbers of those that were claims."""
        notes = self._memory[_NUMBERS.size + _LONGEST_NAME :]
        return [place + 1 for place in range(min(self.numbers[3], _MOST_NOTED)) if notes[place]]

    @property
    def last_words(self) -> str:
        return self._memory[_NUMBERS.size : _NUMBERS.size + _LONGEST_NAME].rstrip(b"\0").decode()

    @last_words.setter
    def last_words(self, said: str) -> None:
        encoded = said.encode()[:_LONGEST_NAME].ljust(_LONGEST_NAME, b"\0")
        self._memory[_NUMBERS.size : _NUMBERS.size + _LONGEST_NAME] = encoded


class Saboteur:
    """Watches the writes of this process's worker."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._lock = threading.Lock()  # transactions of plain functions are committed in threads
        write_observer.observer = self._watch

    def _watch(self, where: str, text: str) -> Written:
        if where not in _WATCHED:
            return _nothing
        name = _name_of(where, text)
        if where == "claim":
            # One that finds nothing writes nothing, and that is known only afterwards.
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
            # When this coroutine has sent it and waits for the answer.
            asyncio.get_running_loop().call_soon(self._die, arming, name)
        except RuntimeError:
            threading.Thread(target=self._die, args=(arming, name), daemon=True).start()

    def _die(self, arming: int, name: str) -> None:
        self._page.last_words = f"{arming} {name}"
        os.kill(os.getpid(), signal.SIGKILL)


def _name_of(where: str, text: str) -> str:
    found = re.search(r"stepwell\.(\w+)", text)
    return found[1] if found else f"{text} of a {where}"


def _nothing(_: Sequence[Any]) -> None:
    pass
