"""The error of a span, as an event with its type, message and traceback."""

from __future__ import annotations

from opentelemetry.trace import Span, StatusCode

from stepwell.errors import JobFailed
from stepwell.errors.text import error_message, error_name, format_traceback


def mark_failed(span: Span, error: BaseException, reason: str | None = None, job_id: str | None = None) -> str:
    """Mark a span as failed, and return the type of the error, or the reason why it was asked to stop."""
    # The error of a process comes as the `JobFailed` of its own job, which has its texts.
    remote = error if isinstance(error, JobFailed) and error.job_id == job_id else None
    name = reason or (error_name(error) if remote is None else remote.type)
    if span.is_recording():
        if remote is None:
            # Not by `record_exception`: it raises for an error whose str() does, and does not bound any text.
            texts = error_name(error), error_message(error), format_traceback(error, error.__traceback__)
        else:
            texts = remote.type, remote.message, remote.traceback or ""
        names = ("exception.type", "exception.message", "exception.stacktrace")
        span.add_event("exception", dict(zip(names, texts, strict=True)))
        span.set_status(StatusCode.ERROR, reason or texts[1][:1000])
        span.set_attribute("error.type", name)
    return name
