"""A day in the life of a fleet: the clock goes on by minutes, and things happen, drawn by lot."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from .agenda import MINUTE, Agenda
from .roster import NOW_AND_THEN, OVERLAPS, SELDOM, draw_catchup, draw_timing
from .trouble import Trouble
from .world import World

_MOST_WORKERS = 3


class Day:
    """From the world's time to `end`, in steps of up to `longest` minutes. The `mutable` schedules may be changed."""

    def __init__(
        self, world: World, dice: random.Random, end: datetime, zone: str, mutable: Sequence[str], longest: int
    ) -> None:
        self._world = world
        self._dice = dice
        self._zone = zone
        self._mutable = mutable
        self._longest = longest
        self._end = end
        self._agenda = Agenda(world)
        self._trouble = trouble = Trouble(self._agenda)
        for times, act in (
            (3, trouble.close_rest),
            (3, trouble.close_gate),
            (6, trouble.kill_one),
            (6, trouble.freeze_one),
            (4, trouble.pause_one),
            (2, trouble.pause_all),
            (2, trouble.lose_all),
            (1, trouble.freeze_all),
            (6, self._set_back),
            (3, self._set_ahead),
            (10, self._pause_schedule),
            (16, self._trigger),
            (10, self._change),
        ):
            for _ in range(times):
                at = world.now + dice.uniform(0.02, 0.93) * (end - world.now)
                self._agenda.add(at, act, random.Random(dice.getrandbits(32)))

    def run(self) -> int:
        """Live through it, in how many steps it returns. In the end all is open, all are back, and nothing is left."""
        world, agenda, dice = self._world, self._agenda, self._dice
        steps = 0
        while agenda.furthest < self._end:
            agenda.do_what_is_due()
            joins, minutes = dice.random() < 0.2, dice.randint(1, self._longest)
            if joins and self._trouble.is_calm and len(world.members) < _MOST_WORKERS:
                world.note("a worker joins")
                world.launch()
            agenda.step(world.now + minutes * MINUTE)
            steps += 1
        self._open_all()
        for name in world.oracle.names:
            if world.oracle.rule(name).jitter:
                self._pause(name)
        agenda.step(agenda.furthest + 61 * MINUTE)  # no jitter is longer
        return steps + 1

    def _open_all(self) -> None:
        self._world.await_launches()
        self._trouble.come_back()
        self._trouble.resume_all()
        for opens in (self._trouble.open_rest, self._trouble.open_gate):
            opens(self._dice)
            self._world.settle()

    def _set_back(self, dice: random.Random) -> bool:
        self._world.note("the clock is set back")
        self._agenda.step(self._world.now - dice.randint(1, 40) * MINUTE)
        return True

    def _set_ahead(self, dice: random.Random) -> bool:
        self._world.note("the clock is set ahead")
        self._agenda.step(self._world.now + dice.randint(15, 80) * MINUTE)
        return True

    def _pause_schedule(self, dice: random.Random) -> bool:
        name = dice.choice(self._world.oracle.names)
        self._world.note(f"schedule {name!r} is paused")
        self._pause(name)

        def resume(_dice: random.Random) -> bool:
            self._world.note(f"schedule {name!r} is resumed")
            self._resume(name)
            return True

        self._agenda.add_in(dice.randint(1, 240), resume, dice)
        return True

    def _pause(self, name: str) -> None:
        self._world.app.schedule_named(name).pause()
        self._world.oracle.pause(name)

    def _resume(self, name: str) -> None:
        self._world.app.schedule_named(name).resume()
        self._world.oracle.resume(name, self._world.now)

    def _trigger(self, dice: random.Random) -> bool:
        # While nobody is there, a run that waits would race the ticks that are missed.
        if not self._world.tickers:
            return False
        name = dice.choice(self._world.oracle.names)
        if any(tick.at == self._world.now for tick in self._world.oracle.ticks(name)):
            return False  # twice at one instant, which only a clock that stands still makes possible
        self._world.note(f"schedule {name!r} is triggered")
        self._world.app.schedule_named(name).trigger()
        self._world.oracle.trigger(name, self._world.now)
        return True

    def _change(self, dice: random.Random) -> bool:
        old = self._world.oracle.rule(dice.choice(self._mutable))
        when, tz = (old.when, old.tz)
        if dice.random() < 0.6:
            when, tz = draw_timing(dice, self._zone, NOW_AND_THEN, SELDOM)
        new = replace(old, when=when, tz=tz, overlap=dice.choice(OVERLAPS), catchup=draw_catchup(dice, when))
        self._world.note(f"now {new}")
        self._world.put(new)
        return True
