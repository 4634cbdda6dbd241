"""What one run of a durable job remembers: which steps were saved, by which keys, and what is to be saved next.

A key is `scope/name#n`. The scope is the branch of a `gather` or `map` in which a step is taken, so that branches which
take turns in another order do not change places. Knows no SQL and runs nothing.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Literal, NoReturn

import msgspec

from stepwell.errors import AmbiguousKey, BadValue, ConfigError, StepChanged, StepwellError, TooManySteps
from stepwell.telemetry.bus import log
from stepwell.telemetry.steps import ErrorNotKept, ManySteps, StepDrifted, SuspensionCaught
from stepwell.values.job import ClaimedJob
from stepwell.values.names import check_name
from stepwell.values.retry import Retry
from stepwell.values.step import SHORT, NewStep, SavedJournal, SavedStep, StepKind, is_large

Drift = Literal["warn", "fail", "rerun"]
"""What happens when a step that was saved is called with other arguments: its saved value is taken, with a warning; the
attempt fails; or the step is run again."""

MANY_STEPS = 1_000
MOST_STEPS = 10_000
MOST_BYTES = 64 * 1024 * 1024
_LONGEST_KEY = 500
# A run that does not come to these has lost nothing by it.
_BESIDE = ("retry", "undo", "patch", "random", "uuid")
_TRY = re.compile(r"~\d+$")
_decode = msgspec.json.Decoder(SavedJournal)


class Suspend(BaseException):
    """Leaves the handler: the job is given back until all of one of the groups of steps have ended."""

    def __init__(
        self, groups: Iterable[list[str]] = (), steps: Iterable[NewStep] = (), *, at_once: bool = False
    ) -> None:
        super().__init__("the job is suspended: let this through, it is not an error")
        self.groups = list(groups)
        self.steps = list(steps)
        self.at_once = at_once

    @classmethod
    def all(cls, suspends: Iterable[Suspend]) -> Suspend:
        """One for several branches: the job goes on when any of them can."""
        every = list(suspends)
        return cls(
            _apart([group for one in every for group in one.groups]),
            [step for one in every for step in one.steps],
            at_once=any(one.at_once for one in every),
        )


def _apart(groups: list[list[str]]) -> list[list[str]]:
    """The same groups, with no step in two of them."""
    shared = {key for key, count in Counter(key for group in groups for key in set(group)).items() if count > 1}
    apart = [group for group in groups if shared.isdisjoint(group)]
    sets = list(dict.fromkeys(frozenset(group) for group in groups if not shared.isdisjoint(group)))
    # One that holds all of another is not complete before that is.
    least = [group for group in sets if not any(other < group for other in sets)]
    counts = Counter(key for group in least for key in group)
    apart += [sorted(group) for group in least if all(counts[key] == 1 for key in group)]
    # Of others it is not certain which is complete first: so the job looks whenever a step of them has ended.
    apart += [
        [key] for key in sorted({key for group in least if any(counts[key] > 1 for key in group) for key in group})
    ]
    return apart


class Lost(BaseException):
    """Leaves the handler: the job is no longer this run's, so what it does changes nothing."""

    def __init__(self) -> None:
        super().__init__("the job is no longer this run's: it was given to another, or has ended")


class StopReplay(BaseException):
    """Leaves the handler: all that is to be undone has been found."""


@dataclass(frozen=True, slots=True)
class Undo:
    """How a step is undone, should the job fail or be cancelled."""

    key: str
    n: int
    fn: Callable[..., Any]
    value: Any
    retry: Retry | None


class NameInUse(msgspec.Struct):
    """How often steps of one name were come to, and in which task or thread last."""

    user: Any
    count: int = 1


class Scope(msgspec.Struct):
    """Where keys are counted: the handler itself, or one branch of it."""

    prefix: str = ""
    names: dict[str, NameInUse] = {}
    last: str | None = None
    """The key of the step that was come to last."""
    leaving: Suspend | None = None
    """By this it was left, whatever became of it since."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where the handler has come to: the key of a step, and what was saved of it."""

    key: str
    n: int
    saved: SavedStep | None


_scope: ContextVar[tuple[Journal, Scope] | None] = ContextVar("stepwell_scope", default=None)


class Journal:
    """The memory of one run. `always_replay` suspends it after each step that is saved, for tests."""

    def __init__(self, job: ClaimedJob, drift: Drift = "warn", *, always_replay: bool = False) -> None:
        self.job = job
        self.always_replay = always_replay
        self._loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        self._thread = get_ident()
        self._drift: Drift = drift
        self._root = Scope()
        self._branches: list[Scope] = []
        self._used: set[str] = set()
        self._notes: list[NewStep] = []
        self._errors: list[tuple[str, NewStep, bool]] = []
        self._said_caught = False
        self._lock = threading.Lock()
        self._closed = False
        self.undos: list[Undo] = []
        try:
            saved = _decode.decode(job.journal) if job.journal is not None else None
        except RecursionError:
            raise BadValue(
                f"job {job.id} ({job.task}) has saved a step, an event or a child's result that is nested too deep"
            ) from None
        self.cursor = saved.cursor if saved else None
        self.input = bytes(saved.input).decode() if saved else "null"
        self.undoing = saved.undoing if saved else False
        self.life = saved.life if saved else 0
        self._memo = {step.key: step for step in saved.steps or ()} if saved else {}
        self._progressed = saved is not None and self._done > saved.steps_counted
        self.first_attempt = self.attempt
        """`attempt`, as it was when this run began."""
        self._n = max((step.n for step in self._memo.values()), default=0)
        self._bytes = len(job.journal or "")
        self._warned = self._n >= MANY_STEPS

    @property
    def attempt(self) -> int:
        """Which counted try this is, as stepwell.fail counts: the first since the job last saved a step."""
        return 1 if self._progressed else self.job.attempt

    @property
    def _done(self) -> int:
        return sum(step.done for step in self._memo.values())

    def enter(self, kind: StepKind, name: str, key: str | None = None, was: str | None = None) -> Place:
        """Come to a step: find its key, and what was saved of it."""
        with self._lock:
            if self._closed:
                raise StepwellError(
                    f"job {self.job.id} ({self.job.task}) has ended this run: its ctx is of no more use"
                )
            found = _scope.get()  # as in `scope`, without another call
            scope = found[1] if found is not None and found[0] is self else self._root
            if scope.leaving is not None:
                raise scope.leaving  # somebody caught it, who should not have
            if self._errors:
                self._take_errors(scope)
            if key is not None:
                full = scope.prefix + _own_key(key)
            elif name != "<lambda>":
                full = scope.prefix + self._numbered(scope, name)
                # The second of that name was the second of the old one.
                was = None if was is None else was + full[len(scope.prefix) + len(name) :]
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
                old = scope.prefix + was
                if old in self._used:
                    raise AmbiguousKey(
                        f"step {full!r} of task {self.job.task!r} was {old!r}, and so was another, or is: give each "
                        "the key that it had, by was="
                    )
                if saved is None:
                    saved = self._memo.get(old)
                    self._used.add(full)
                    full = full if saved is None else old
                self._used.add(old)
            self._used.add(full)
            scope.last = full
            if saved is None:
                return Place(full, self._next_n(full), None)
        if saved.kind != kind:
            raise StepChanged(
                f"step {full!r} of job {self.job.id} ({self.job.task}) was saved as a {saved.kind} and is a {kind} "
                "now: give it another key="
            )
        return Place(full, saved.n, saved)

    def _next_n(self, key: str) -> int:
        """The place in the order of a step that is new."""
        n = self._n = self._n + 1
        if n >= MANY_STEPS and not self._warned:
            self._warned = True
            log(ManySteps(self.job.id, self.job.task, self.job.queue, self.attempt, MANY_STEPS, MOST_STEPS))
        if n > MOST_STEPS:
            raise TooManySteps(
                f"job {self.job.id} ({self.job.task}) has {MOST_STEPS} steps: return Restart(...) before, to go on "
                "without those that are done, or spawn children that share the work"
            )
        if len(key) > _LONGEST_KEY:
            raise AmbiguousKey(f"the key {key[:80]!r}... has {len(key)} characters, more than {_LONGEST_KEY}")
        return n

    def _numbered(self, scope: Scope, name: str) -> str:
        used, current = scope.names.get(name), self._current()
        if used is None:
            scope.names[name] = NameInUse(current)
            return name
        if used.user is not current:
            if _lives(used.user):
                raise AmbiguousKey(
                    f"two steps named {name!r} of task {self.job.task!r} run side by side, and could be taken for each "
                    "other when the job is resumed: run them by ctx.gather or ctx.map, or give each a key="
                )
            used.user = current
        used.count += 1
        return f"{name}#{used.count}"

    def _current(self) -> Any:
        # Asked for each step: to look for the loop each time would be a good part of its cost. In another thread there
        # may be none, and of a plain function the journal is made in one.
        if self._loop is not None and get_ident() == self._thread:
            return asyncio.current_task(self._loop)
        loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        return threading.current_thread() if loop is None else asyncio.current_task(loop)

    @property
    def scope(self) -> Scope:
        """The branch that is running, or the handler itself."""
        found = _scope.get()
        return found[1] if found is not None and found[0] is self else self._root

    def number_branch(self, name: str) -> str:
        """The name of a gather, map or first in this scope, numbered from the second on."""
        scope = self.scope
        with self._lock:
            self._take_errors(scope)
            return self._numbered(scope, f"{name}[]").replace("[]", "")

    def prefix_of(self, branch: str) -> str:
        """With this begin the keys of a branch of this scope."""
        return f"{self.scope.prefix}{branch}/"

    def in_branch(self, name: str) -> Scope:
        """From here on, in this context, keys are those of a branch."""
        scope = Scope(self.prefix_of(name))
        self._branches.append(scope)
        _scope.set((self, scope))
        return scope

    def waits_in(self, branch: str) -> list[str]:
        """The waits of a branch that had not ended when this run began, or that ended since the branch last ran: what
        they have taken it has done nothing with."""
        prefix = self.prefix_of(branch)
        # Few of the run's, so that all of them are not compared with each other for each `first` of a `map`.
        scopes = [scope for scope in self._branches if scope.prefix.startswith(prefix)]
        steps = [step for key, step in self._memo.items() if key.startswith(prefix)]
        last: dict[str, SavedStep] = {}
        for step in sorted(steps, key=lambda step: step.n):
            own = (scope.prefix for scope in scopes if step.key.startswith(scope.prefix))
            last[max(own, key=len, default=prefix)] = step
        went_on = {scope.prefix for scope in scopes if scope.last and scope.last not in self._memo}
        unused = [step for scope, step in last.items() if not step.timed_out and scope not in went_on]
        waits = [step for step in steps if step.pending or step in unused]
        return [step.key for step in waits if step.kind in ("wait", "receive")]

    def children_in(self, branch: str) -> list[str]:
        """The children of a branch that had not ended when this run began."""
        return [step.child_id for step in self._pending_in(branch) if step.child_id is not None]

    def _pending_in(self, branch: str) -> list[SavedStep]:
        prefix = self.prefix_of(branch)
        return [step for key, step in self._memo.items() if key.startswith(prefix) and step.pending]

    def peek(self, key: str) -> SavedStep | None:
        """What was saved under a key, without coming to it."""
        return self._memo.get(key)

    @property
    def lost_undos(self) -> list[str]:
        """The steps that are to be undone, and that this run did not come to."""
        found = {undo.key for undo in self.undos}
        return [key for key, step in self._memo.items() if step.undo and key not in found]

    @property
    def last_n(self) -> int:
        """The place of the last step, in their order."""
        return self._n

    def number(self) -> int:
        """A place in the order for a step that belongs to another."""
        with self._lock:
            self._n += 1
            return self._n

    def note(self, step: NewStep) -> None:
        """Save this with whatever is saved next: should that never come, nothing depends on it."""
        with self._lock:
            self._notes.append(step)

    def note_error(self, step: NewStep, *, kept: bool) -> None:
        """Save this error should the handler turn out to have caught it: then it must meet it again in each run to
        come. If it does not, and the attempt fails, the step is to be tried again. `kept`: what is saved of it is
        enough to raise one of its class again."""
        with self._lock:
            self._errors.append((self.scope.prefix, step, kept))

    def _take_errors(self, scope: Scope) -> None:
        # Whoever comes to another step, in the branch that failed or above it, has caught what came out of it.
        caught = [(step, kept) for prefix, step, kept in self._errors if prefix.startswith(scope.prefix)]
        self._errors = [one for one in self._errors if not one[0].startswith(scope.prefix)]
        for step, kept in caught:
            self._notes.append(step)
            if not kept and step.error is not None:
                log(
                    ErrorNotKept(
                        self.job.id,
                        self.job.task,
                        self.job.queue,
                        self.attempt,
                        step.key,
                        step.error.type or "an error",
                    )
                )

    def note_all_errors(self) -> None:
        """The handler is left, to come back: what it has caught, and what its branches have failed with, stays so."""
        with self._lock:
            self._take_errors(self._root)

    def noted(self) -> list[NewStep]:
        """What is to be saved with whatever is saved next."""
        with self._lock:
            return list(self._notes)

    def with_notes(self, *steps: NewStep) -> Sequence[NewStep]:
        """What is to be saved now: steps, and before them what was noted."""
        if not self._notes:
            return steps
        with self._lock:
            noted, self._notes = self._notes, []
        return [*noted, *steps]

    def weigh(self, value: str, key: str) -> None:
        """Count the size of a value that comes with every claim from now on; a large one does not."""
        self._bytes += len(value) if len(value) <= SHORT or not is_large(value) else 0
        if self._bytes > MOST_BYTES:
            raise TooManySteps(
                f"step {key!r}: what job {self.job.id} ({self.job.task}) has saved takes more than "
                f"{MOST_BYTES // 1024**2} MB: return Restart(...), or store the data elsewhere and save references"
            )

    @property
    def replaying(self) -> bool:
        """Whether this branch of the run has yet to come to something that an earlier run saved."""
        prefix = self.scope.prefix
        return any(
            key.startswith(prefix) and key not in self._used and step.kind not in _BESIDE
            for key, step in self._memo.items()
        )

    def give_up(self, branch: str) -> None:
        """A branch is not run any more: to what it saved the run need not come. If it still runs, in a thread, it is
        left at its next step."""
        prefix = self.prefix_of(branch)
        for scope in self._branches:
            if scope.prefix.startswith(prefix):
                scope.leaving = scope.leaving or Suspend()
        self._used.update(key for key in self._memo if key.startswith(prefix))

    def stop_if_undoing(self) -> None:
        """Leave the handler, if it runs only to find what is to be undone: here ends what it had done."""
        if self.undoing:
            raise StopReplay

    def stop_if_all_found(self) -> None:
        """Leave the handler, if it runs only to find what is to be undone and has come to all of that."""
        if self.undoing and not self.lost_undos:
            raise StopReplay

    def drifted(self, place: Place, fingerprint: int | None) -> bool:
        """Whether a step that was saved must be run again, because it is called with other arguments."""
        saved = place.saved
        if saved is None or fingerprint is None or saved.fingerprint in (None, fingerprint) or self.undoing:
            return False
        if self._drift == "fail":
            raise StepChanged(
                f"step {place.key!r} of job {self.job.id} ({self.job.task}) was saved with other arguments: make them "
                "depend on saved values only, or give the step another key="
            )
        log(StepDrifted(self.job.id, self.job.task, self.job.queue, self.attempt, place.key, self._drift))
        return self._drift == "rerun"

    def was_saved(self, *, anew: bool = True) -> None:
        """A step was saved. Unless it only took the place of another, attempts are counted from 1 again. Leaves the
        handler, if it is to be replayed always."""
        self._progressed = self._progressed or anew
        if self.always_replay:
            self.leave(Suspend(at_once=True))

    def was_left(self) -> bool:
        """Whether the handler, or this branch of it, was left before and goes on all the same. That is said once."""
        if self.scope.leaving is None:
            return False
        if not self._said_caught:
            self._said_caught = True
            log(SuspensionCaught(self.job.id, self.job.task, self.job.queue, self.attempt))
        return True

    def leave(self, suspend: Suspend) -> NoReturn:
        """Leave the handler, or a branch of it. Should a bare `except` of its own swallow that, it is left all the
        same, at the next step or when it returns."""
        self.scope.leaving = suspend
        raise suspend

    @property
    def leaving(self) -> Suspend | None:
        """By this the handler was left."""
        return self._root.leaving

    def close(self) -> None:
        """The run is over: whoever still uses its context is told."""
        self._closed = True


def _own_key(key: str) -> str:
    if key.startswith("undo:") or _TRY.search(key):
        raise ConfigError(
            f"key is {key!r}: keys that begin with 'undo:' or end with '~1' and the like are Stepwell's own"
        )
    return check_name(key, "key")


def _lives(user: Any) -> bool:
    return user.is_alive() if isinstance(user, threading.Thread) else not user.done()
