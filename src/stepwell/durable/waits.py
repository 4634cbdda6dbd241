"""Waits: for a time, for an event, for a signal to the job. A wait longer than a moment suspends the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from stepwell.durable.effects import LONGEST_PAUSE, Effects, saved_text
from stepwell.durable.exits import Suspend
from stepwell.errors import BadValue, ConfigError
from stepwell.values.bounds import check_name
from stepwell.values.duration import Duration, seconds
from stepwell.values.outcome import Fail
from stepwell.values.step import NewStep


class DidNotCome(TimeoutError, Fail):
    """The handler read the value of an event that did not come in time."""


@dataclass(frozen=True, slots=True)
class Event:
    """Returned by `ctx.wait_for` and `ctx.receive`. If the event did not come in time, `timed_out` is true, and reading
    `value` raises `TimeoutError` and fails the job permanently: another attempt would find the same."""

    name: str
    key: str | None
    timed_out: bool
    _value: Any

    @property
    def value(self) -> Any:
        """The value that the event was emitted with, as plain JSON values."""
        if self.timed_out:
            event_key = f" with key {self.key!r}" if self.key else ""
            raise DidNotCome(f"no event {self.name!r}{event_key} came in time: look at timed_out first")
        return self._value

    def __bool__(self) -> bool:
        return not self.timed_out


async def sleep(effects: Effects, delay: Duration, key: str | None) -> None:
    await _sleep(effects, seconds(delay, "delay"), None, key)


async def sleep_until(effects: Effects, at: datetime, key: str | None) -> None:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise ConfigError(f"sleep_until takes a datetime with a time zone, not {at!r}")
    await _sleep(effects, None, at.timestamp(), key)


async def _sleep(effects: Effects, delay: float | None, until: float | None, key: str | None) -> None:
    journal = effects.journal
    try:
        entry = journal.enter("sleep", "sleep", key)
        if entry.saved is not None and not entry.saved.pending:
            return
        journal.stop_if_undoing()
        if entry.saved is not None:
            raise Suspend([[entry.key]])
        if delay is not None and delay <= LONGEST_PAUSE and not journal.always_replay:
            await effects.pause(delay)
            journal.notes.add(NewStep(entry.key, entry.n, "sleep"))
            return
        raise Suspend([[entry.key]], [NewStep(entry.key, entry.n, "sleep", pending=True, delay=delay, until=until)])
    except Suspend as suspend:
        await effects.leave(suspend)


async def wait_for(effects: Effects, event: str, key: str | None, timeout: Duration | None) -> Event:
    return await _wait(effects, event, key, timeout, "wait")


async def receive(effects: Effects, name: str, timeout: Duration | None) -> Event:
    return await _wait(effects, name, None, timeout, "receive")


async def _wait(
    effects: Effects, event: str, event_key: str | None, timeout: Duration | None, kind: Literal["wait", "receive"]
) -> Event:
    limit = None if timeout is None else seconds(timeout, "timeout")
    check_name(event, "event" if kind == "wait" else "name")
    if event_key is not None:
        check_name(event_key, "key")
    journal = effects.journal
    try:
        entry = journal.enter(kind, f"{kind}:{event}" if event_key is None else f"{kind}:{event}:{event_key}")
        saved = entry.saved
        if saved is not None and not saved.pending:
            text = "null" if saved.timed_out else await saved_text(effects, saved)
            try:
                value = msgspec.json.decode(text)
            except RecursionError:
                raise BadValue(f"the value of event {event!r} is nested too deep") from None
            return Event(event, event_key, saved.timed_out, value)
        journal.stop_if_undoing()
        if saved is not None:
            raise Suspend([[entry.key]])
        step = NewStep(entry.key, entry.n, kind, pending=True, delay=limit, event=event, event_key=event_key or "")
        raise Suspend([[entry.key]], [step])
    except Suspend as suspend:
        await effects.leave(suspend)
