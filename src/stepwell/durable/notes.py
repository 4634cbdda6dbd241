"""Records that a run saves with its next save, to spare a round trip: short sleeps, failed tries, caught errors."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import msgspec

from stepwell.durable.exits import Suspend
from stepwell.values.step import NewStep


class CutOff(msgspec.Struct):
    """The branches that one `ctx.first` has cut off, because another one failed.

    If that error ends the attempt, the next attempt runs all of them again, so what they wait for is saved. If the
    handler catches it, they have lost.
    """

    prefix: str
    """The prefix of the branch that this `ctx.first` is in."""
    step: NewStep
    """Says which branch failed. Saved once the error is caught."""
    wait: Suspend
    """What the branches wait for."""
    notes: Sequence[NewStep]
    """What they have noted."""
    unused: Sequence[str]
    """The keys of their waits whose event they have not used."""
    children: Sequence[str]
    """The ids of their children that have not ended."""
    caught: bool = False

    def has_lost(self, dropped: Sequence[NewStep], repeated: Collection[str]) -> bool:
        """Whether these branches have lost for good: the decision is saved, or will be as the run ends. Else the next
        attempt runs them again. `dropped` are the notes, and `repeated` the keys of steps, that the attempt loses."""
        return self.caught and self.step not in dropped and self.step.key not in repeated


class Notes:
    """The noted records of one run. The job is still correct if they are never saved."""

    __slots__ = ("_lock", "_noted", "cut_off", "errors")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: list[NewStep] = []
        self.errors: list[tuple[str, NewStep, bool]] = []
        """Errors of steps that the handler may yet catch, each with the prefix of its branch."""
        self.cut_off: list[CutOff] = []
        """The branches that errors have cut off in `ctx.first`."""

    def __bool__(self) -> bool:
        return bool(self._noted or self.cut_off)

    def add(self, step: NewStep) -> None:
        with self._lock:
            self._noted.append(step)

    def add_error(self, prefix: str, step: NewStep, *, kept: bool) -> None:
        """Save this error if the handler turns out to have caught it: every later run must meet it again. If the
        attempt fails instead, the step is tried again. `kept`: the record is enough to raise an error of its class."""
        with self._lock:
            self.errors.append((prefix, step, kept))

    def keep_errors(self, prefix: str) -> list[NewStep]:
        """Note the errors of a branch, which its handler has caught, and return those that are not `kept`."""
        with self._lock:
            caught = [(step, kept) for own, step, kept in self.errors if own.startswith(prefix)]
            self.errors = [one for one in self.errors if not one[0].startswith(prefix)]
            self._noted += [step for step, _ in caught]
        return [step for step, kept in caught if not kept]

    def keep_decisions(self, prefix: str) -> None:
        """Note which branches failed in each `ctx.first` whose error the handler has caught in a branch."""
        with self._lock:
            for cut in self.cut_off:
                if not cut.caught and cut.prefix.startswith(prefix):
                    cut.caught = True
                    self._noted.append(cut.step)

    def give_up(self, prefix: str) -> None:
        """Forget what was cut off in a branch that has itself lost."""
        self.cut_off = [cut for cut in self.cut_off if not cut.prefix.startswith(prefix)]

    def all_waits(self, suspend: Suspend) -> Suspend:
        """This suspension, and what branches wait for that errors have cut off and that have not lost."""
        return Suspend.all([suspend, *(cut.wait for cut in self.cut_off if not cut.caught)])

    def all(self) -> list[NewStep]:
        """The records that the next save includes."""
        with self._lock:
            return list(self._noted)

    def and_steps(self, *steps: NewStep) -> Sequence[NewStep]:
        """The noted records and these steps, to be saved now."""
        if not self._noted:
            return steps
        with self._lock:
            noted, self._noted = self._noted, []
        return [*noted, *steps]
