"""The memory of one run of a durable job: the saved steps by key, and the steps to be saved next.

It knows no SQL and calls no function of the user's. `keys` names the steps, `effects` saves them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import msgspec

from stepwell.durable.backend import Durability
from stepwell.durable.exits import StopReplay, Suspend
from stepwell.durable.keys import LONGEST_KEY, Branch, check_own_key, next_number, number
from stepwell.durable.notes import Notes
from stepwell.errors import AmbiguousKey, BadValue, StepChanged, StepwellError, TooManySteps
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.steps import ErrorNotKept, JobResumed, ManySteps, StepDrifted, StepSaved, SuspensionCaught
from stepwell.values.job import ClaimedJob
from stepwell.values.retry import Retry
from stepwell.values.step import SHORT, NewStep, SavedJournal, SavedStep, StepKind, is_large

MANY_STEPS = 1_000
MOST_STEPS = 10_000
MOST_BYTES = 64 * 1024 * 1024
# A replay that does not reach these has lost nothing.
_NEVER_MISSED = ("retry", "undo", "patch", "random", "uuid")
_decode = msgspec.json.Decoder(SavedJournal)
_EMPTY = SavedJournal(None, msgspec.Raw(b"null"), undoing=False, steps=None)


def read_journal(job: ClaimedJob) -> SavedJournal:
    """The steps that came with a job's claim, and where it stands in its chain or machine."""
    try:
        return _EMPTY if job.journal is None else _decode.decode(job.journal)
    except RecursionError:
        raise BadValue(
            f"job {job.id} ({job.task}) has saved a step, an event or a child's result that is nested too deep"
        ) from None


class Undo(msgspec.Struct, frozen=True):
    """How a step is compensated if the job fails or is cancelled."""

    key: str
    n: int
    fn: Callable[..., Any]
    value: Any
    retry: Retry | None


class StepEntry(msgspec.Struct, frozen=True, gc=False):
    """A step that the handler has reached: its key, its number in the order of steps, and its saved record."""

    key: str
    n: int
    saved: SavedStep | None


_branch: ContextVar[tuple[Journal, Branch] | None] = ContextVar("stepwell_branch", default=None)


class Journal:
    """The memory of one run."""

    def __init__(self, job: ClaimedJob, durability: Durability) -> None:
        self.job = job
        self.always_replay = durability.always_replay
        self._events = events = durability.events
        self._taker = durability.taker
        self._drift = durability.drift
        self._root = Branch()
        self._branches: list[Branch] = []
        self._used: set[str] = set()
        self._told_caught = False
        self._lock = threading.Lock()
        self._closed = False
        self.notes = Notes()
        self.undos: list[Undo] = []
        self.patches: dict[str, bool] = {}
        """The answers of `ctx.patched` in this run, by key."""
        saved = read_journal(job)
        self.undoing = saved.undoing
        self.life = saved.life
        self._memo = {step.key: step for step in saved.steps or ()}
        self._progressed = saved.progressed
        self.first_attempt = self.attempt
        """`attempt` as it was when this run began."""
        self._n = saved.last_n
        self._bytes = len(job.journal or "")
        self._warned = self._n >= MANY_STEPS
        self.tells_saved = events.wanted(StepSaved)
        """Whether anybody wants to know of each saved step. Asked once per run: a step must not pay for it."""
        if self._memo and events.wanted(JobResumed):
            self.tell(JobResumed, len(self._memo))

    @property
    def attempt(self) -> int:
        """The attempt as stepwell.fail counts it: 1 again once the job has saved a step."""
        return 1 if self._progressed else self.job.attempt

    def tell(self, event: Callable[..., Telemetry], *fields: Any) -> None:
        self._events.emit(event(self.job.id, self.job.task, self.job.queue, self.attempt, *fields))

    def enter(
        self,
        kind: StepKind,
        name: str,
        key: str | None = None,
        was: str | None = None,
        later_names: Sequence[str] = (),
    ) -> StepEntry:
        """Reach a step: find its key and its saved record, which other code may have saved under one of `later_names`.
        Raises the `Suspend` that this branch was left by, if the handler caught it."""
        with self._lock:
            if self._closed:
                raise StepwellError(
                    f"the run of job {self.job.id} ({self.job.task}) has ended: its ctx can no longer be used"
                )
            found = _branch.get()  # as in `branch`, without another call
            branch = found[1] if found is not None and found[0] is self else self._root
            if branch.leaving is not None:
                raise branch.leaving
            if self.notes.errors or self.notes.cut_off:
                self.keep_caught(branch)
            if key is not None:
                full = branch.prefix + check_own_key(key)
            elif name != "<lambda>":
                if later_names:
                    name = self._saved_name(branch, kind, name, later_names)
                full = branch.prefix + number(branch, name, self._taker.current(), self.job.task)
                # The second step of the new name was the second step of the old name.
                was = None if was is None else was + full[len(branch.prefix) + len(name) :]
            else:
                raise AmbiguousKey(
                    "a lambda has no name to find its step by: give it key=, or use a function that has a name"
                )
            if full in self._used:
                raise AmbiguousKey(
                    f"two steps of task {self.job.task!r} have the key {full!r}: give each a key= of its own"
                )
            saved = self._memo.get(full)
            if was is not None:
                old = branch.prefix + was
                if old in self._used:
                    raise AmbiguousKey(
                        f"step {full!r} of task {self.job.task!r} has was={was!r}, but another step has or had the key "
                        f"{old!r}: give each step the key that it had"
                    )
                if saved is None:
                    saved = self._memo.get(old)
                    self._used.add(full)
                    full = full if saved is None else old
                self._used.add(old)
            self._used.add(full)
            branch.last = full
            if saved is None:
                n = self._n = self._n + 1
                if n >= MANY_STEPS or len(full) > LONGEST_KEY:
                    self._check_bounds(full)
                return StepEntry(full, n, None)
        if saved.kind != kind:
            raise StepChanged(
                f"step {full!r} of job {self.job.id} ({self.job.task}) was saved as a {saved.kind} and is a {kind} "
                "now: give it another key="
            )
        return StepEntry(full, saved.n, saved)

    def _saved_name(self, branch: Branch, kind: StepKind, name: str, later_names: Sequence[str]) -> str:
        """One of `later_names` if the next step of that name is saved and of this kind, else `name`."""
        for later in later_names:
            saved = self._memo.get(branch.prefix + next_number(branch, later))
            if saved is not None and saved.kind == kind:
                return later
        return name

    def _check_bounds(self, key: str) -> None:
        if self._n >= MANY_STEPS and not self._warned:
            self._warned = True
            self.tell(ManySteps, MANY_STEPS, MOST_STEPS)
        if self._n > MOST_STEPS:
            raise TooManySteps(
                f"job {self.job.id} ({self.job.task}) has {MOST_STEPS} steps: return Restart(...) earlier, to go on "
                "without the saved ones, or spawn children that share the work"
            )
        if len(key) > LONGEST_KEY:
            raise AmbiguousKey(f"the key {key[:80]!r}... has {len(key)} characters, more than {LONGEST_KEY}")

    def next_n(self) -> int:
        """A number in the order of steps for a record that belongs to another step."""
        with self._lock:
            self._n += 1
            return self._n

    @property
    def branch(self) -> Branch:
        """The branch that is running, or the handler itself."""
        found = _branch.get()
        return found[1] if found is not None and found[0] is self else self._root

    def number_branch(self, name: str) -> str:
        """The name of a gather, map or first in this branch, numbered from the second on."""
        branch = self.branch
        with self._lock:
            self.keep_caught(branch)
            return number(branch, f"{name}[]", self._taker.current(), self.job.task).replace("[]", "")

    def prefix_of(self, name: str) -> str:
        return f"{self.branch.prefix}{name}/"

    def enter_branch(self, name: str) -> Branch:
        """Count keys in a new branch from here on, in this context."""
        branch = Branch(self.prefix_of(name))
        self._branches.append(branch)
        _branch.set((self, branch))
        return branch

    def waits_in(self, name: str, *, pending: bool = False) -> list[str]:
        """The keys of a branch's waits whose event the branch has not used: the wait is pending, or it ended after the
        branch last ran. `pending`: only those that are pending, for a branch that does not run any more."""
        prefix = self.prefix_of(name)
        # Filtered first: otherwise each `first` in a `map` would compare all branches of the run with each other.
        branches = [branch for branch in self._branches if branch.prefix.startswith(prefix)]
        steps = [step for key, step in self._memo.items() if key.startswith(prefix)]
        last: dict[str, SavedStep] = {}
        for step in sorted(steps, key=lambda step: step.n):
            own = (branch.prefix for branch in branches if step.key.startswith(branch.prefix))
            last[max(own, key=len, default=prefix)] = step
        went_on = {branch.prefix for branch in branches if branch.last and branch.last not in self._memo}
        unused = [step for own, step in last.items() if not step.timed_out and own not in went_on]
        waits = [step for step in steps if step.pending or (not pending and step in unused)]
        return [step.key for step in waits if step.kind in ("wait", "receive")]

    def children_in(self, name: str) -> list[str]:
        """The ids of a branch's children that had not ended when this run began."""
        prefix = self.prefix_of(name)
        pending = [step for key, step in self._memo.items() if key.startswith(prefix) and step.pending]
        return [step.child_id for step in pending if step.child_id is not None]

    def peek(self, key: str) -> SavedStep | None:
        """The record saved under a key, without reaching that step."""
        return self._memo.get(key)

    @property
    def replaying(self) -> bool:
        """Whether this branch has yet to reach a step that an earlier run saved."""
        prefix = self.branch.prefix
        return any(
            key.startswith(prefix) and key not in self._used and step.kind not in _NEVER_MISSED
            for key, step in self._memo.items()
        )

    def give_up(self, name: str) -> None:
        """Run a branch no more: its saved steps need not be reached. In a thread, its next step leaves it."""
        prefix = self.prefix_of(name)
        for branch in self._branches:
            if branch.prefix.startswith(prefix):
                branch.leaving = branch.leaving or Suspend()
        self._used.update(key for key in self._memo if key.startswith(prefix))

    def drifted(self, entry: StepEntry, fingerprint: int | None) -> bool:
        """Whether a saved step must run again because its arguments have changed."""
        saved = entry.saved
        if saved is None or fingerprint is None or saved.fingerprint in (None, fingerprint) or self.undoing:
            return False
        if self._drift == "fail":
            raise StepChanged(
                f"step {entry.key!r} of job {self.job.id} ({self.job.task}) was saved with other arguments: make them "
                "depend on saved values only, or give the step another key="
            )
        self.tell(StepDrifted, entry.key, self._drift)
        return self._drift == "rerun"

    def keep_caught(self, branch: Branch) -> None:
        """Note the errors of a branch: the handler has caught them. It reaches another step in this branch, or in one
        above it, or it returns from it."""
        self.notes.keep_decisions(branch.prefix)
        self._keep_errors(branch.prefix)

    def _keep_errors(self, prefix: str) -> None:
        for step in self.notes.keep_errors(prefix):
            self.tell(ErrorNotKept, step.key, (step.error and step.error.type) or "an error")

    def keep_all_errors(self) -> None:
        """Keep the errors that the handler has caught and its branches have failed with: the handler is suspended."""
        self._keep_errors(self._root.prefix)

    def count_bytes(self, value: str, key: str) -> None:
        """Count a value that every later claim will carry. Large values are stored apart, and do not count."""
        self._bytes += len(value) if len(value) <= SHORT or not is_large(value) else 0
        if self._bytes > MOST_BYTES:
            raise TooManySteps(
                f"step {key!r}: the saved steps of job {self.job.id} ({self.job.task}) take more than "
                f"{MOST_BYTES // 1024**2} MB: return Restart(...), or store the data elsewhere and save references"
            )

    def was_saved(self, *, progress: bool = True) -> None:
        """Count attempts from 1 again, unless the saved step only replaced another. With `always_replay`, suspend."""
        self._progressed = self._progressed or progress
        if self.always_replay:
            self.leave(Suspend(at_once=True))

    def tell_saved(self, steps: Sequence[NewStep]) -> None:
        for step in steps:
            self.tell(StepSaved, step.key, step.kind, step.seconds, step.error is not None)

    def was_left(self) -> bool:
        """Whether the handler, or this branch, caught a suspension and went on. Emits a warning the first time."""
        if self.branch.leaving is None:
            return False
        if not self._told_caught:
            self._told_caught = True
            self.tell(SuspensionCaught)
        return True

    def leave(self, suspend: Suspend) -> NoReturn:
        """Leave the handler or a branch. If a bare `except` swallows this, the next step or the return leaves it."""
        self.branch.leaving = suspend
        raise suspend

    @property
    def leaving(self) -> Suspend | None:
        return self._root.leaving

    @property
    def lost_undos(self) -> list[str]:
        """The keys of saved steps with a compensation that is to be run and that this replay did not reach."""
        found = {undo.key for undo in self.undos}
        steps = (key for key, step in self._memo.items() if step.undo and key not in found)
        return [key for key in steps if f"undo:{key}" not in self._memo]

    def stop_if_undoing(self) -> None:
        """End a replay that only collects compensations: the handler has reached its first new step."""
        if self.undoing:
            raise StopReplay

    def stop_if_all_found(self) -> None:
        """End a replay that only collects compensations once it has found them all."""
        if self.undoing and not self.lost_undos:
            raise StopReplay

    def close(self) -> None:
        self._closed = True
