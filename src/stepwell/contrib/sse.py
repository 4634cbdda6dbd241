"""Send the changes of a job to a browser, as server-sent events. Knows no framework: it makes a response's body."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec

from stepwell.errors import AppClosed, DatabaseError, StepwellError
from stepwell.jobs.handle import JobHandle
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.change import JobChange
from stepwell.values.duration import Duration, seconds
from stepwell.values.json import encode_other

R = TypeVar("R")

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers for the response: neither a browser nor a proxy such as nginx may hold the events back."""

# How the job goes on is not known. The response just ends, so the browser connects again.
_NO_ANSWER = (AppClosed, DatabaseError, TimeoutError)
_encoder = msgspec.json.Encoder(enc_hook=encode_other)


class EventStream(Generic[R]):
    """The body of a response with the media type `text/event-stream`: an event for each change of a job, and the last
    one, named "end", when the job has ended. Iterate over it with `async for` or `for`.

    `last_event_id` is the header of that name, which a browser sends when it reconnects: if the job has not changed
    since, nothing is sent again. `show` returns what the browser gets of a change, as a value for JSON. By default that
    is state, attempt, progress, result, error, and of each step its key, kind and whether it is pending, but not its
    value. The state is null if the job cannot be read to its end: its history is not kept, or its result does not fit
    the return annotation. A comment every `heartbeat` finds out whether the browser is still there. The response ends
    without an "end" after `timeout`, or if the database does not answer: the browser then connects again by itself.
    """

    def __init__(
        self,
        job: JobHandle[R],
        last_event_id: str | None = None,
        *,
        show: Callable[[JobChange[R]], Any] | None = None,
        heartbeat: Duration = "15s",
        timeout: Duration | None = None,
    ) -> None:
        self._changes = job.changes(timeout)
        self._last = last_event_id
        self._show = shown if show is None else show
        self._heartbeat = seconds(heartbeat, "heartbeat")

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(self._changes.abeats(self._heartbeat)) as beats:
            try:
                async for change in beats:
                    yield self._event(change)
            except _NO_ANSWER:
                return
            except StepwellError as error:
                yield _lost(error)

    def __iter__(self) -> Generator[bytes]:
        refuse_in_event_loop("for ... in EventStream", "async for ... in EventStream")
        with contextlib.closing(self._changes.beats(self._heartbeat)) as beats:
            try:
                for change in beats:
                    yield self._event(change)
            except _NO_ANSWER:
                return
            except StepwellError as error:
                yield _lost(error)

    def _event(self, change: JobChange[R] | None) -> bytes:
        # A browser that knows this state already gets a comment, so that the response begins. It must get the end:
        # until it closes the stream, it connects again and again.
        if change is None or (change.mark == self._last and not change.ended):
            return b":\n\n"
        name = b"end" if change.ended else b"change"
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (change.mark.encode(), name, _encoder.encode(self._show(change)))


def _lost(error: StepwellError) -> bytes:
    """The end of a job that cannot be read. Without an event "end", a browser would connect again and again."""
    return b"event: end\ndata: %b\n\n" % _encoder.encode({"state": None, "error": str(error)})


def shown(change: JobChange[Any]) -> dict[str, Any]:
    """Return what a browser gets of a change by default."""
    return {
        "id": change.id,
        "state": change.state,
        "attempt": change.attempt,
        "progress": change.progress,
        "steps": [{"key": step.key, "kind": step.kind, "pending": step.pending} for step in change.steps],
        "result": change.result,
        "error": change.error,
    }
