"""How each kind of step is taken: look whether it was saved, else do it and save it. Plans, for async code and threads.

What was saved is never done again. A wait that is longer than a moment leaves the handler by `Suspend`, and the job is
run anew when it is over, with all that it had saved.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import time
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Literal
from uuid import UUID

import msgspec

from stepwell.acts import Pause, Plan, ReadLarge, Run, Save, Spawn
from stepwell.errors import BadValue, ConfigError, JobCancelled, JobFailed, StepwellError
from stepwell.events import UndoFailed, log
from stepwell.journal import (
    Journal,
    Place,
    Suspend,
    Undo,
    check_key,
    describe_error,
    fingerprint,
    look_at,
    name_of,
    saved_error,
)
from stepwell.outcome import Cancel, Fail, RetryIn, Snooze
from stepwell.retry import Retry
from stepwell.step import NewStep, SavedStep, StepKind
from stepwell.values import encode_value, new_decoder

# A wait that is not longer keeps its slot: to give the job back and to claim it again takes a few milliseconds, too.
LONGEST_PAUSE = 1.0
_SCALARS = (type(None), bool, int, str, float)
_Saying = (Fail, Cancel, Snooze, RetryIn)


@dataclass(frozen=True, slots=True)
class Event:
    """What `ctx.wait_for` and `ctx.receive` return. Of one that did not come in time `timed_out` is true, and to ask
    for its `value` raises `TimeoutError`."""

    name: str
    key: str | None
    timed_out: bool
    _value: Any

    @property
    def value(self) -> Any:
        """What the event says, as plain JSON values."""
        if self.timed_out:
            about = f" with key {self.key!r}" if self.key else ""
            raise TimeoutError(f"no event {self.name!r}{about} came in time: look at timed_out first")
        return self._value

    def __bool__(self) -> bool:
        return not self.timed_out


class StepCall:
    """A call of `ctx.step`: the place it came to, and what is saved of it. Raises if it cannot be a step, or if the
    handler is to be left here."""

    __slots__ = ("_began", "_encoded", "_journal", "_mark", "_most", "_undo", "_value", "args", "attempt", "fn",
                 "is_async", "place", "rerun", "retry", "to_be_run")  # fmt: skip

    def __init__(
        self,
        journal: Journal,
        most: int,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        key: str | None,
        retry: Retry | None,
        undo: Callable[..., Any] | None,
        was: str | None,
    ) -> None:
        look = look_at(fn)
        if retry is not None and not isinstance(retry, Retry):
            raise ConfigError(f"step {look.name!r}: retry is {retry!r}: give a Retry, such as Retry(max_attempts=3)")
        if undo is not None and not _can_undo(undo):
            raise ConfigError(
                f"step {look.name!r}: undo is {undo!r}: give a function that takes the step's value, or nothing"
            )
        self.fn = fn
        self.is_async = look.is_async
        self.args = args
        self.retry = retry
        self._journal = journal
        self._most = most
        self._undo = undo
        place = self.place = journal.enter("step", look.name, key, was)
        mark = self._mark = fingerprint(args)
        self.rerun = place.saved is not None and journal.drifted(place, mark)
        self.attempt = 1
        self.to_be_run = place.saved is None or self.rerun
        if self.to_be_run:
            journal.stop_if_undoing()
            if not self.rerun and retry is not None:
                self.attempt = _attempts_so_far(journal, place)
            self._began = time.perf_counter()

    def failed(self, error: Exception) -> None:
        """Note that it failed, and is not tried again by itself."""
        note_failure(self._journal, self.place, "step", error)

    def to_save(self, value: Any) -> list[NewStep]:
        """What is to be saved, now that it has been run."""
        encoded = self._encoded = _encode(self._journal, self.place.key, value, self._most)
        self._value = value
        step = NewStep(
            self.place.key,
            self.place.n,
            "step",
            msgspec.Raw(encoded),
            fingerprint=self._mark,
            seconds=_since(self._began),
            undo=self._undo is not None,
            replaced=self.rerun,
        )
        return self._journal.with_notes([step])

    def saved(self) -> Any:
        """Its value, now that it has been saved: as it will be when it is read again, for what works now must work
        then."""
        if self._journal.always_replay:
            raise Suspend(at_once=True)
        value = self._value
        if type(value) not in _SCALARS:
            value = _decode(self.fn, self.place.key, self._encoded)
        self.keep_undo(value)
        return value

    def keep_undo(self, value: Any) -> None:
        """Remember how it is undone."""
        if self._undo is not None:
            self._journal.undos.append(Undo(self.place.key, self.place.n, self._undo, value, self.retry))
            self._journal.stop_if_all_found()


def note_failure(journal: Journal, place: Place, kind: StepKind, error: BaseException) -> None:
    """Note that a step failed: that stays so, if the handler catches it."""
    if isinstance(error, Exception) and not isinstance(error, _Saying):
        journal.note_error(NewStep(place.key, place.n, kind, error=describe_error(error)))
        _tag(error, place.key, final=False)


def take_step(journal: Journal, call: StepCall, timeout: float | None) -> Plan[Any]:
    """Run a function once, and take its saved value ever after."""
    place = call.place
    if place.saved is not None and not call.to_be_run:
        if place.saved.error is not None:
            raise saved_error(place.key, place.saved.error)
        value = yield from _saved_value(place.saved, call.fn)
        if place.saved.undo:  # not so in a fork: the other job undoes it
            call.keep_undo(value)
        return value
    run = Run(call.fn, call.is_async, call.args, timeout, place.key)
    if call.retry is None:
        try:
            value = yield run
            saving = call.to_save(value)
        except Exception as error:
            call.failed(error)
            raise
    else:
        saving = call.to_save((yield from _attempts(journal, place, call.attempt, run, call.retry, "step")))
    yield Save(saving)
    return call.saved()


def _attempts(
    journal: Journal, place: Place, attempt: int, run: Run, retry: Retry, kind: Literal["step", "undo"]
) -> Plan[Any]:
    """Run a function by a policy of its own. The error that is left is saved."""
    while True:
        try:
            return (yield run)
        except _Saying:
            raise
        except Exception as error:
            described = describe_error(error)
            if attempt >= retry.max_attempts or not retry.allows(error):
                final = msgspec.structs.replace(described, final=True)
                yield Save(journal.with_notes([NewStep(place.key, place.n, kind, error=final)]))
                _tag(error, place.key, final=True)
                raise
            delay = retry.delay(attempt, error)
            again = NewStep(f"{place.key}~{attempt}", journal.number(), "retry", error=described)
            attempt += 1
            if delay > LONGEST_PAUSE or journal.always_replay:
                again.pending, again.delay = True, delay
                raise Suspend([[again.key]], [again]) from None
            journal.note(again)
        # Not while the error is being handled: it would be the context of all that comes.
        yield Pause(delay)


def _tag(error: Exception, key: str, *, final: bool) -> None:
    """Let it be known, should it leave the handler, which step it came from."""
    with contextlib.suppress(AttributeError):
        error.stepwell_step = key, final  # pyright: ignore[reportAttributeAccessIssue]


def _attempts_so_far(journal: Journal, place: Place) -> int:
    attempt = 1
    while (failed := journal.peek(f"{place.key}~{attempt}")) is not None:
        if failed.pending:
            raise Suspend([[failed.key]])
        attempt += 1
    return attempt


def undo_all(journal: Journal, most: int, default: Retry) -> Plan[None]:
    """Undo what was done, the last first. What cannot be undone is left so, and said."""
    journal.undoing = False  # from here on steps are taken again
    for key in journal.lost_undos:
        log(UndoFailed(journal.job.id, journal.job.task, key, "the code does not come to that step any more"))
    for undo in sorted(journal.undos, key=lambda undo: undo.n, reverse=True):
        key = f"undo:{undo.key}"
        saved = journal.peek(key)
        if saved is not None:
            continue
        place = Place(key, journal.number(), None)
        attempt = _attempts_so_far(journal, place)
        args = (undo.value,) if _takes_one(undo.fn) else ()
        began = time.perf_counter()
        try:
            value = yield from _attempts(
                journal,
                place,
                attempt,
                Run(undo.fn, look_at(undo.fn).is_async, args, None, key),
                undo.retry or default,
                "undo",
            )
            encoded = _encode(journal, key, value, most)
        except Exception as error:
            log(UndoFailed(journal.job.id, journal.job.task, undo.key, f"{type(error).__name__}: {error}"))
            if isinstance(error, (*_Saying, BadValue)):
                yield Save(journal.with_notes([NewStep(key, place.n, "undo", error=describe_error(error))]))
            continue
        step = NewStep(key, place.n, "undo", msgspec.Raw(encoded), seconds=_since(began))
        yield Save(journal.with_notes([step]))


def sleep(journal: Journal, delay: float | None, until: datetime | None, key: str | None) -> Plan[None]:
    """Wait for a time."""
    place = journal.enter("sleep", "sleep", key)
    if place.saved is not None:
        if place.saved.pending:
            journal.stop_if_undoing()
            raise Suspend([[place.key]])
        return
    journal.stop_if_undoing()
    step = NewStep(place.key, place.n, "sleep")
    if delay is not None and delay <= LONGEST_PAUSE and not journal.always_replay:
        yield Pause(delay)
        journal.note(step)
        return
    step.pending, step.delay = True, delay
    step.until = None if until is None else until.timestamp()
    raise Suspend([[place.key]], [step])


def wait(
    journal: Journal, event: str, about: str | None, timeout: float | None, kind: Literal["wait", "receive"]
) -> Plan[Event]:
    """Wait for an event, or for something that is sent to the job."""
    check_key(event, "event" if kind == "wait" else "name")
    if about is not None:
        check_key(about, "key")
    place = journal.enter(kind, f"{kind}:{event}" if about is None else f"{kind}:{event}:{about}")
    saved = place.saved
    if saved is not None and not saved.pending:
        value = None if saved.timed_out else (yield from _raw_value(saved))
        return Event(event, about, saved.timed_out, value)
    journal.stop_if_undoing()
    if saved is not None:
        raise Suspend([[place.key]])
    step = NewStep(place.key, place.n, kind, pending=True, delay=timeout, event=event, event_key=about or "")
    raise Suspend([[place.key]], [step])


@dataclass(slots=True)
class Spawned:
    """A child on its way: the step that spawns it, its job, and what its result becomes."""

    key: str
    task: str
    decode: Callable[[str | None], Any]
    saved: SavedStep | None
    step: NewStep | None = None
    job: Any = None
    child_id: str | None = None


def enter_spawn(journal: Journal, call: Any) -> Spawned:
    """Come to a child; one that was not saved has still to be put in."""
    place = journal.enter("child", call.task.name)
    spawned = Spawned(place.key, call.task.name, call.task.codec.decode_result, place.saved)
    if place.saved is not None:
        spawned.child_id = place.saved.child_id
        return spawned
    journal.stop_if_undoing()
    spawned.step = NewStep(place.key, place.n, "child", pending=True)
    spawned.job = call.job
    return spawned


def put_children(journal: Journal, children: Sequence[Spawned]) -> Plan[None]:
    """Put in those that have not been."""
    fresh = [child for child in children if child.step is not None and child.child_id is None]
    if fresh:
        if notes := journal.with_notes():
            yield Save(notes)
        ids = yield Spawn(fresh)  # pyright: ignore[reportArgumentType]
        for child, child_id in zip(fresh, ids, strict=True):
            child.child_id = child_id


def child_result(child: Spawned) -> Plan[Any]:
    """What a child returned, or the error it failed with; if it has not ended, the job waits."""
    saved = child.saved
    if saved is None or saved.pending:
        raise Suspend([[child.key]])
    if saved.error is not None:
        job_id, error = child.child_id or "?", saved.error
        failed = (
            JobCancelled(job_id, child.task, error.message)
            if error.state == "cancelled"
            else JobFailed(job_id, child.task, error.type or "Error", error.message or "", None)
        )
        # Should it leave the handler, the next attempt spawns the child anew.
        _tag(failed, child.key, final=False)
        raise failed
    text = yield from _text(saved)
    try:
        return child.decode(text)
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the result of child {child.key!r} does not fit the return annotation of {child.task!r}: {error}"
        ) from None


def choose_first(journal: Journal) -> tuple[Place, int | None]:
    """Come to a `first`; and which branch won, if that was saved."""
    place = journal.enter("first", "first")
    return place, None if place.saved is None else msgspec.json.decode(place.saved.value)


def save_first(journal: Journal, place: Place, winner: int) -> Plan[None]:
    """Save which branch won."""
    yield Save(journal.with_notes([NewStep(place.key, place.n, "first", msgspec.Raw(str(winner)))]))


def now(journal: Journal) -> Plan[datetime]:
    """The database's time, the first time it is asked."""
    place = journal.enter("now", "now")
    if place.saved is not None:
        return msgspec.json.decode(place.saved.value, type=datetime).astimezone(UTC)
    journal.stop_if_undoing()
    at: datetime = yield Save(journal.with_notes([NewStep(place.key, place.n, "now")]))
    if journal.always_replay:
        raise Suspend(at_once=True)
    return at.astimezone(UTC)


def draw(journal: Journal, kind: Literal["random", "uuid"]) -> msgspec.Raw:
    """Chance that falls the same way in each run of a job: by its id and the step's key, so nothing need be saved
    first. It is noted all the same, for a fork, which has another id."""
    place = journal.enter(kind, kind)
    if place.saved is not None:
        return place.saved.value
    journal.stop_if_undoing()
    chance = random.Random(f"{journal.job.id}/{place.key}")  # noqa: S311
    drawn = chance.random() if kind == "random" else str(UUID(int=chance.getrandbits(128), version=4))
    raw = msgspec.Raw(msgspec.json.encode(drawn))
    journal.note(NewStep(place.key, place.n, kind, raw))
    return raw


def patched(journal: Journal, name: str) -> bool:
    """Whether this run is past the change: it was so when it came here first, or has nothing old to come to."""
    key = f"patch:{check_key(name, 'name')}"
    saved = journal.peek(journal.scope.prefix + key)
    if saved is None and (journal.replaying or journal.undoing):
        return False
    place = journal.enter("patch", key, key)
    if place.saved is None:
        journal.note(NewStep(place.key, place.n, "patch"))
    return True


def _since(began: float) -> float:
    # Whole microseconds: to write out the digits of noise behind them takes longer than many a step.
    return int((time.perf_counter() - began) * 1_000_000) / 1_000_000


def _encode(journal: Journal, key: str, value: Any, most: int) -> str:
    what = "step {!r} of task {!r} returned"
    encoded = encode_value(value, most, "App(max_result_size=...)", what, key, journal.job.task)
    journal.weigh(encoded, key)
    return encoded


def _saved_value(saved: SavedStep, fn: Callable[..., Any]) -> Plan[Any]:
    return _decode(fn, saved.key, (yield from _text(saved)))


def _raw_value(saved: SavedStep) -> Plan[Any]:
    return msgspec.json.decode((yield from _text(saved)))


def _text(saved: SavedStep) -> Plan[str]:
    return (yield ReadLarge(saved.key)) if saved.large else bytes(saved.value).decode()


def _decode(fn: Callable[..., Any], key: str, text: str) -> Any:
    while isinstance(fn, partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    try:
        return _decoder(getattr(fn, "__func__", fn)).decode(text)
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the saved value of step {key!r} does not fit the return annotation of its function: {error}; give the "
            "step another key= if it is another step now"
        ) from None


@lru_cache(maxsize=4096)
def _decoder(fn: Callable[..., Any]) -> msgspec.json.Decoder[Any]:
    try:
        kind = typing.get_type_hints(fn, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):
        kind = Any
    try:
        return new_decoder(kind)
    except TypeError as error:
        raise ConfigError(f"what {name_of(fn)!r} returns cannot be stored as JSON: {error}") from None


def takes_context(fn: Callable[..., Any], kind: type[Any]) -> bool:
    """Whether the first parameter of a function is annotated as a context."""
    try:
        hints = typing.get_type_hints(fn)
        first = next(iter(inspect.signature(fn).parameters), None)
    except (NameError, TypeError, ValueError, AttributeError):
        return False
    return first is not None and hints.get(first) is kind


def _can_undo(fn: object) -> bool:
    if not callable(fn):
        return False
    try:
        inspect.signature(fn).bind()
    except TypeError:
        return _takes_one(fn)
    except ValueError:
        return True  # a builtin that does not tell
    return True


def _takes_one(fn: Callable[..., Any]) -> bool:
    """Whether an undo function is to be given the value of its step."""
    try:
        inspect.signature(fn).bind(None)
    except (TypeError, ValueError):
        return False
    return True
