"""What befalls the workers and the queues of a simulated day.

Each thing waits until it can happen: what would leave the outcome to chance does not. So nobody opens a queue while all
workers are away, or the runs that wait there and the ticks that were missed would race each other when they come back.
"""

from __future__ import annotations

import random

from .agenda import Agenda, Strike


class Trouble:
    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._world = agenda.world
        self._away = False
        self._idle = False

    @property
    def is_calm(self) -> bool:
        """Whether somebody is there who runs jobs. Always so, but while all are away or all are paused."""
        return not self._away and not self._idle

    def close_rest(self, dice: random.Random) -> bool:
        """Pause a queue: its runs stay live."""
        if self._away:
            return False
        self._world.open_rest(False)
        self._agenda.add_in(dice.randint(60, 180), self.open_rest, dice)
        return True

    def open_rest(self, _dice: random.Random) -> bool:
        # Runs that stand in line are let go no earlier than at the times of their ticks.
        if self._away or self._agenda.is_behind:
            return False
        self._world.open_rest(True)
        return True

    def close_gate(self, dice: random.Random) -> bool:
        """Hold up runs in the midst of their work."""
        self._world.open_gate(False)
        self._agenda.add_in(dice.randint(60, 180), self.open_gate, dice)
        return True

    def open_gate(self, _dice: random.Random) -> bool:
        if not self.is_calm or self._agenda.is_behind:
            return False
        # Who has not heard yet that a run was cancelled must not see it through first.
        for member in self._world.members:
            self._world.thaw(member)
        self._world.settle()
        self._world.open_gate(True)
        return True

    def kill_one(self, dice: random.Random) -> bool:
        return self._strike(self._kill, dice)

    def freeze_one(self, dice: random.Random) -> bool:
        return self._strike(self._freeze, dice)

    def pause_one(self, dice: random.Random) -> bool:
        if not self.is_calm or len(self._world.claimers) < 2:
            return False
        member = dice.choice(self._world.claimers)
        self._world.note(f"pause {member.process.pid}")
        self._world.pause(member)

        def resume(_dice: random.Random) -> bool:
            if not self.is_calm:
                return False
            if member in self._world.members:
                self._world.resume(member)
            return True

        self._agenda.add_in(dice.randint(20, 90), resume, dice)
        return True

    def pause_all(self, dice: random.Random) -> bool:
        """Ticks are seen to, and nothing runs."""
        if not self.is_calm:
            return False
        self._world.note("nobody claims")
        self._world.await_launches()
        for member in self._world.members:
            self._world.thaw(member)
            self._world.pause(member)
        self._idle = True
        self._agenda.add_in(dice.randint(20, 80), lambda _: self.resume_all(), dice)
        return True

    def resume_all(self) -> bool:
        if self._agenda.is_behind:
            return False
        for member in self._world.members:
            self._world.resume(member)
        self._idle = False
        return True

    def lose_all(self, dice: random.Random) -> bool:
        """Nobody is there for a while."""
        if not self.is_calm:
            return False
        self._world.note("all die")
        for member in list(self._world.members):
            self._world.kill(member)
        return self._stay_away(dice)

    def freeze_all(self, dice: random.Random) -> bool:
        """The same, but they come back as they were."""
        if not self.is_calm:
            return False
        self._world.note("all are frozen")
        self._world.await_launches()
        for member in self._world.members:
            self._world.freeze(member)
        return self._stay_away(dice)

    def come_back(self) -> bool:
        self._away = False
        for member in self._world.members:
            self._world.thaw(member)
        if not self._world.members:
            self._world.launch(wait=True)
        self._world.note("back")
        self._world.settle()
        return True

    def _stay_away(self, dice: random.Random) -> bool:
        self._away = True
        self._agenda.add_in(dice.randint(20, 100), lambda _: self.come_back(), dice)
        return True

    def _strike(self, strike: Strike, dice: random.Random) -> bool:
        if not self.is_calm:
            return False
        self._agenda.strike_next(strike, dice)
        return True

    def _kill(self, dice: random.Random) -> None:
        if not self.is_calm:
            return
        victim = dice.choice(self._world.members)
        self._world.note(f"kill {victim.process.pid}")
        self._world.kill(victim)
        if not self._world.claimers:
            self._world.launch(wait=True)

    def _freeze(self, dice: random.Random) -> None:
        if not self.is_calm or len(self._world.claimers) < 2:
            return
        victim = dice.choice(self._world.claimers)
        self._world.note(f"freeze {victim.process.pid}")
        self._world.freeze(victim)

        def thaw(_dice: random.Random) -> bool:
            if self._away:
                return False
            if victim in self._world.members:
                self._world.thaw(victim)
            return True

        self._agenda.add_in(dice.randint(1, 60), thaw, dice)
