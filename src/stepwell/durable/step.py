"""How steps are taken: look whether it was saved, else do it and save it. Plans, for async code and threads.

What was saved is not done again, unless its arguments have changed and the task asks for that (`drift="rerun"`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from stepwell.durable.backoff import pause_after
from stepwell.durable.effects import LONGEST_PAUSE, Pause, Plan, RunFunction, Save, saved_text
from stepwell.durable.function_info import can_undo, check_value, decode_value, fingerprint, look_at
from stepwell.durable.journal import Journal, Place, Suspend, Undo
from stepwell.durable.saved_error import can_be_raised_again, describe_error, saved_error, tag_error
from stepwell.errors import ConfigError
from stepwell.values.json import encode_value
from stepwell.values.names import check_name
from stepwell.values.outcome import SAYING
from stepwell.values.retry import Retry
from stepwell.values.step import NewStep, SavedStep, StepKind


class StepCall:
    """A call of `ctx.step`: the place it came to, and what is saved of it. Raises if it cannot be a step, or if the
    handler is to be left here."""

    __slots__ = ("_began", "_journal", "_mark", "_most", "_undo", "_value", "args", "attempt", "fn", "look", "place",
                 "rerun", "retry", "to_be_run")  # fmt: skip

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
        look = self.look = look_at(fn)
        if retry is not None or undo is not None:
            _check_options(look.name, retry, undo)
        self.fn = fn
        self.args = args
        self.retry = retry
        self._undo = undo
        self._journal = journal
        self._most = most
        place = self.place = journal.enter("step", look.name, key, was)
        mark = self._mark = fingerprint(args)
        self.rerun = place.saved is not None and journal.drifted(place, mark)
        self.to_be_run = self.rerun or place.saved is None
        if self.to_be_run:
            journal.stop_if_undoing()
            self.attempt = 1 if retry is None else next_attempt(journal, self.tries)
            self._began = time.perf_counter()

    @property
    def tries(self) -> str:
        """With this begin the keys of its tries. Those of a step that is run again are not those it had before."""
        return f"{self.place.key}@{self._mark}" if self.rerun else self.place.key

    def failed(self, error: Exception) -> None:
        """Note that it failed, and is not tried again by itself."""
        note_failure(self._journal, self.place, "step", error, replaced=self.rerun)

    def to_save(self, value: Any) -> Sequence[NewStep]:
        """What is to be saved, now that it has been run."""
        place, journal = self.place, self._journal
        encoded = encode_step(journal, place.key, value, self._most)
        # As it will be when it is read again, for what works now must work then.
        self._value = value if self.look.is_as_saved(value) else check_value(self.fn, place.key, encoded)
        undo, took = self._undo is not None, since(self._began)
        return journal.with_notes(
            NewStep(place.key, place.n, "step", encoded, None, self._mark, took, undo, self.rerun)
        )

    def saved(self) -> Any:
        """Its value, now that it has been saved."""
        self._journal.was_saved(anew=not self.rerun)
        self.keep_undo(self._value)
        return self._value

    def keep_undo(self, value: Any) -> None:
        """Remember how it is undone."""
        if self._undo is not None:
            self._journal.undos.append(Undo(self.place.key, self.place.n, self._undo, value, self.retry))
            self._journal.stop_if_all_found()


def _check_options(name: str, retry: object, undo: object) -> None:
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"step {name!r}: retry is {retry!r}: give a Retry, such as Retry(max_attempts=3)")
    if undo is not None and not can_undo(undo):
        raise ConfigError(f"step {name!r}: undo is {undo!r}: give a function that takes the step's value, or nothing")


def note_failure(
    journal: Journal, place: Place, kind: StepKind, error: BaseException, *, replaced: bool = False
) -> None:
    """Note that a step failed: that stays so, if the handler catches it."""
    if isinstance(error, Exception):
        if not isinstance(error, SAYING):
            step = NewStep(place.key, place.n, kind, error=describe_error(error), replaced=replaced)
            journal.note_error(step, kept=can_be_raised_again(error))
        tag_error(error, place.key, final=False)


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
    run = RunFunction(call.fn, call.look.is_async, call.args, timeout, place.key)
    if call.retry is None:
        tried = _once(call, run)
    else:
        tried = run_with_retry(journal, place, call.tries, call.attempt, run, call.retry, "step")
    value = yield from tried
    try:
        saving = call.to_save(value)
    except Exception as error:
        call.failed(error)
        raise
    yield Save(saving)
    return call.saved()


def _once(call: StepCall, run: RunFunction) -> Plan[Any]:
    try:
        return (yield run)
    except Exception as error:
        call.failed(error)
        raise


def run_with_retry(
    journal: Journal,
    place: Place,
    tries: str,
    attempt: int,
    run: RunFunction,
    retry: Retry,
    kind: Literal["step", "undo"],
) -> Plan[Any]:
    """Run a function by a policy of its own. The error that is left is saved."""
    while True:
        try:
            return (yield run)
        except SAYING:
            raise
        except Exception as error:
            described = describe_error(error)
            if attempt >= retry.max_attempts or not (retry.allows(error) or run.is_late(error)):
                final = msgspec.structs.replace(described, final=True)
                step = NewStep(place.key, place.n, kind, error=final, replaced=place.saved is not None)
                yield Save(journal.with_notes(step))
                tag_error(error, place.key, final=True)
                raise
            delay = pause_after(error, retry, attempt, f"step {place.key!r} of {journal.job.task}")
            again = NewStep(f"{tries}~{attempt}", journal.number(), "retry", error=described)
            attempt += 1
            if delay > LONGEST_PAUSE or journal.always_replay:
                again.pending, again.delay = True, delay
                raise Suspend([[again.key]], [again]) from None
            journal.note(again)
        # Not while the error is being handled: it would be the context of all that comes.
        yield Pause(delay)


def next_attempt(journal: Journal, tries: str) -> int:
    """Which try of a step comes next, by those that were saved. Leaves the handler if that is not due yet."""
    attempt = 1
    while (failed := journal.peek(f"{tries}~{attempt}")) is not None:
        if failed.pending:
            raise Suspend([[failed.key]])
        attempt += 1
    return attempt


def choose_first(journal: Journal) -> tuple[Place, int | None]:
    """Come to a `first`; and which branch won, if that was saved."""
    place = journal.enter("first", "first")
    return place, None if place.saved is None else msgspec.json.decode(place.saved.value)


def save_first(journal: Journal, place: Place, winner: int) -> Plan[None]:
    """Save which branch won."""
    yield Save(journal.with_notes(NewStep(place.key, place.n, "first", str(winner))))


def now(journal: Journal) -> Plan[datetime]:
    """The database's time, the first time it is asked."""
    place = journal.enter("now", "now")
    if place.saved is not None:
        return msgspec.json.decode(place.saved.value, type=datetime).astimezone(UTC)
    journal.stop_if_undoing()
    at: datetime = yield Save(journal.with_notes(NewStep(place.key, place.n, "now")))
    journal.was_saved()
    return at.astimezone(UTC)


def draw(journal: Journal, kind: Literal["random", "uuid"]) -> bytes:
    """A random value that is the same in each run of one life of a job. It is derived from the job's id, its life and
    the step's key, so nothing need be saved first. It is noted all the same, for a fork, which has another id."""
    place = journal.enter(kind, kind)
    if place.saved is not None:
        return bytes(place.saved.value)
    journal.stop_if_undoing()
    chance = random.Random(f"{journal.job.id}{_life(journal)}/{place.key}")  # noqa: S311
    drawn = chance.random() if kind == "random" else str(UUID(int=chance.getrandbits(128), version=4))
    encoded = msgspec.json.encode(drawn)
    journal.note(NewStep(place.key, place.n, kind, encoded.decode()))
    return encoded


def _life(journal: Journal) -> str:
    # Nothing for the first life: as it was before jobs had several.
    return f"~{journal.life}" if journal.life else ""


def patched(journal: Journal, name: str) -> bool:
    """Whether this run is past the change: it was so when it came here first, or has nothing old to come to."""
    key = f"patch:{check_name(name, 'name')}"
    saved = journal.peek(journal.scope.prefix + key)
    if saved is None and (journal.replaying or journal.undoing):
        return False
    place = journal.enter("patch", key, key)
    if place.saved is None:
        journal.note(NewStep(place.key, place.n, "patch"))
    return True


def since(began: float) -> float:
    """Seconds since then."""
    # Whole microseconds: to write out the digits of noise behind them takes longer than many a step.
    return int((time.perf_counter() - began) * 1_000_000) / 1_000_000


def encode_step(journal: Journal, key: str, value: Any, most: int) -> str:
    """The value of a step as JSON. Raises `BadValue`, which names the step, if it cannot be stored."""
    what = "step {!r} of task {!r} returned"
    encoded = encode_value(value, most, "App(max_result_size=...)", what, key, journal.job.task)
    journal.weigh(encoded, key)
    return encoded


def _saved_value(saved: SavedStep, fn: Callable[..., Any]) -> Plan[Any]:
    return decode_value(fn, saved.key, (yield from saved_text(saved)))
