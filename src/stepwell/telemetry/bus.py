"""The base class of all events, the log, and the bus that hands each event to the log and to subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import asdict

logger = logging.getLogger("stepwell")

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


class EventBus:
    """Hands each event to the log and to the subscribers."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Telemetry], None]] = []

    def subscribe(self, receive: Callable[[Telemetry], None]) -> None:
        """Call `receive` with every event from now on. It must not block; it may be called from any thread."""
        self._subscribers.append(receive)

    def wanted(self, kind: type[Telemetry]) -> bool:
        """Whether an event of this class would reach anybody. Hot paths ask this before they build an event."""
        return bool(self._subscribers) or logger.isEnabledFor(kind.level)

    def emit(self, event: Telemetry, error: BaseException | None = None) -> None:
        """Log an event, with the exception it is about if there is one, and hand it to the subscribers."""
        log(event, error)
        for receive in list(self._subscribers):
            try:
                receive(event)
            except Exception:
                # It must not hurt the worker, and would most likely fail again with the next event.
                self._subscribers.remove(receive)
                logger.exception("a subscriber to events failed and was unsubscribed: %r", receive)


def log(event: Telemetry, error: BaseException | None = None) -> None:
    """Log an event without a bus, with the exception it is about if there is one."""
    if not logger.isEnabledFor(event.own_level):
        return
    fields = asdict(event)
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
