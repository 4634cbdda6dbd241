"""Waits: for a time, for an event, for what is sent to the job. One that is longer than a moment leaves the handler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from stepwell.durable.effects import LONGEST_PAUSE, Pause, Plan, saved_text
from stepwell.durable.journal import Journal, Suspend
from stepwell.errors import BadValue
from stepwell.values.names import check_name
from stepwell.values.outcome import Fail
from stepwell.values.step import NewStep


class DidNotCome(TimeoutError, Fail):
    """Somebody asked what an event says that did not come in time."""


@dataclass(frozen=True, slots=True)
class Event:
    """What `ctx.wait_for` and `ctx.receive` return. Of one that did not come in time `timed_out` is true, and to ask
    for its `value` raises `TimeoutError` and fails the job for good: another try would find the same."""

    name: str
    key: str | None
    timed_out: bool
    _value: Any

    @property
    def value(self) -> Any:
        """What the event says, as plain JSON values."""
        if self.timed_out:
            event_key = f" with key {self.key!r}" if self.key else ""
            raise DidNotCome(f"no event {self.name!r}{event_key} came in time: look at timed_out first")
        return self._value

    def __bool__(self) -> bool:
        return not self.timed_out


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
    journal: Journal, event: str, event_key: str | None, timeout: float | None, kind: Literal["wait", "receive"]
) -> Plan[Event]:
    """Wait for an event, or for something that is sent to the job."""
    check_name(event, "event" if kind == "wait" else "name")
    if event_key is not None:
        check_name(event_key, "key")
    place = journal.enter(kind, f"{kind}:{event}" if event_key is None else f"{kind}:{event}:{event_key}")
    saved = place.saved
    if saved is not None and not saved.pending:
        text = "null" if saved.timed_out else (yield from saved_text(saved))
        try:
            value = msgspec.json.decode(text)
        except RecursionError:
            raise BadValue(f"the value of event {event!r} is nested too deep") from None
        return Event(event, event_key, saved.timed_out, value)
    journal.stop_if_undoing()
    if saved is not None:
        raise Suspend([[place.key]])
    step = NewStep(place.key, place.n, kind, pending=True, delay=timeout, event=event, event_key=event_key or "")
    raise Suspend([[place.key]], [step])
