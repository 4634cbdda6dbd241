"""What is to happen and when, by the clock of the simulated day, and the steps in which that clock moves."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from .world import World

MINUTE = timedelta(minutes=1)

Act: TypeAlias = Callable[[random.Random], bool]
"""Does something and returns True, or False: not now, ask again after the next step."""

Strike: TypeAlias = Callable[[random.Random], None]


@dataclass(eq=False, slots=True)
class _Entry:
    at: datetime
    act: Act
    dice: random.Random
    """Of its own: when it can happen depends on the machine, and the rest of the day should not depend on that."""


class Agenda:
    def __init__(self, world: World) -> None:
        self.world = world
        self.furthest = world.now
        """How far the clock has come, wherever it was set since."""
        self._entries: list[_Entry] = []
        self._strikes: list[tuple[Strike, random.Random]] = []

    @property
    def is_behind(self) -> bool:
        """Whether the clock shows a time that it has shown before."""
        return self.world.now < self.furthest

    def add(self, at: datetime, act: Act, dice: random.Random) -> None:
        self._entries.append(_Entry(at, act, dice))

    def add_in(self, minutes: int, act: Act, dice: random.Random) -> None:
        self.add(self.furthest + minutes * MINUTE, act, dice)

    def strike_next(self, strike: Strike, dice: random.Random) -> None:
        """Strike in the midst of the next step."""
        self._strikes.append((strike, dice))

    def do_what_is_due(self) -> None:
        for entry in sorted(self._entries, key=lambda entry: entry.at):
            if entry.at <= self.furthest and entry.act(entry.dice):
                self._entries.remove(entry)
                self.world.settle()

    def step(self, to: datetime) -> None:
        """Set the clock, and wait until all that follows from it has come to pass."""
        self.world.go_to(to)
        self.furthest = max(self.furthest, self.world.now)
        strikes, self._strikes = self._strikes, []
        for strike, dice in strikes:
            time.sleep(dice.uniform(0, 0.05))  # to strike at any moment, not to wait for anything
            strike(dice)
        self.world.settle()
