"""The base class of all events, the log, and the bus that hands each event to the log and to subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import asdict

logger = logging.getLogger("stepwell")

TRACE = 5
"""The level of events that are for subscribers rather than for the log."""

# Fields that every record about a job has as attributes of its own.
_JOB_FIELDS = ("job_id", "task", "queue", "attempt")


class Telemetry(msgspec.Struct, frozen=True):
    """Something that happened. `level` is the highest level at which events of this class are logged."""

    level: ClassVar[int] = logging.INFO
    line: ClassVar[str] = ""
    """The log line, formatted with the event as `{0}`. An event that needs more than that overrides `text`."""

    @property
    def own_level(self) -> int:
        """The level of this event, where a class has more than one."""
        return self.level

    def text(self) -> str:
        return self.line.format(self)

    def detail(self) -> str | None:
        """A traceback to log below the text: that of the event, if it has one."""
        return getattr(self, "traceback", None)


class JobEvent(Telemetry, frozen=True):
    """Something that happened to a job."""

    job_id: str
    task: str
    queue: str
    attempt: int

    @property
    def job(self) -> str:
        return f"{self.task} {self.job_id}"


Receiver = Callable[[Telemetry], None]


class EventBus:
    """Hands each event to the log, to the subscribers, and to those of the bus `above`: a worker's app."""

    def __init__(self, above: EventBus | None = None) -> None:
        self._own = _Subscribers()
        # Shared with the bus above: who subscribes there later is in it, too.
        self._above = _Subscribers() if above is None else above._own

    def subscribe(self, receive: Receiver, kinds: Sequence[type[Telemetry]] | None = None) -> None:
        """Call `receive` with every event from now on, or with those of these classes. It must not block; it may be
        called from any thread."""
        self._own.add(receive, None if kinds is None else tuple(kinds))

    def wanted(self, kind: type[Telemetry]) -> bool:
        """Whether an event of this class would reach anybody. Hot paths ask this before they build an event."""
        if (self._own.any or self._above.any) and (self._own.of(kind) or self._above.of(kind)):
            return True
        return logger.isEnabledFor(kind.level)

    def emit(self, event: Telemetry, error: BaseException | None = None) -> None:
        """Log an event, with the exception it is about if there is one, and hand it to the subscribers."""
        if logger.isEnabledFor(event.level):
            log(event, error)
        for subscribers in (self._own, self._above):
            if subscribers.any:
                for receive in subscribers.of(type(event)):
                    try:
                        receive(event)
                    except Exception:
                        # It must not hurt the worker, and would most likely fail again with the next event.
                        subscribers.remove(receive)
                        logger.exception("a subscriber to events failed and was unsubscribed: %r", receive)


class _Subscribers:
    """Who wants which events. Changed rarely, and asked for every event."""

    __slots__ = ("_all", "_by_kind", "any")

    def __init__(self) -> None:
        self._all: list[tuple[Receiver, tuple[type[Telemetry], ...] | None]] = []
        self._by_kind: dict[type[Telemetry], list[Receiver]] = {}
        self.any = False

    def add(self, receive: Receiver, kinds: tuple[type[Telemetry], ...] | None) -> None:
        self._all = [*self._all, (receive, kinds)]
        self._changed()

    def remove(self, receive: Receiver) -> None:
        self._all = [each for each in self._all if each[0] != receive]
        self._changed()

    def of(self, kind: type[Telemetry]) -> list[Receiver]:
        found = self._by_kind.get(kind)
        if found is None:
            by_kind = self._by_kind
            found = [receive for receive, kinds in self._all if kinds is None or issubclass(kind, kinds)]
            by_kind[kind] = found
        return found

    def _changed(self) -> None:
        self._by_kind = {}
        self.any = bool(self._all)


def log(event: Telemetry, error: BaseException | None = None) -> None:
    """Log an event without a bus, with the exception it is about if there is one."""
    if not logger.isEnabledFor(event.own_level):
        return
    fields = asdict(event)
    fields.pop("exception", None)  # the record has it as exc_info
    about = {name: fields[name] for name in _JOB_FIELDS if fields.get(name) is not None}
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    file, line, function, _ = logger.findCaller()
    record = logger.makeRecord(
        logger.name, event.own_level, file, line, event.text(), (), exc_info, function,
        {"event": type(event).__name__, "fields": fields, **about},
    )  # fmt: skip
    # Formatters print this text as it is. It is bounded and can be encoded, whatever the exception says.
    record.exc_text = (event.detail() or "").rstrip() or None
    logger.handle(record)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun: "1 job", "2 jobs"."""
    return f"1 {one}" if count == 1 else f"{count} {many or one + 's'}"


def first_few(names: Sequence[str], count: int) -> str:
    """The first three names, and how many others there are; `names` may leave out others that `count` counts."""
    return ", ".join(names[:3]) + (f" and {counted(count - 3, 'other')}" if count > 3 else "")
