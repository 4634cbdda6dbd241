"""Check what callers say about jobs: ids, names of steps, reasons and the values of events."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stepwell.errors import BadArgs, BadValue, ConfigError
from stepwell.errors.text import quoted
from stepwell.values.job import JobInfo
from stepwell.values.json import LARGEST_VALUE, encode_value
from stepwell.values.sealing import PLAIN, Sealer

_LONGEST_REASON = 10_000
_LONGEST_SHOWN = 60


def to_job_id(job: JobInfo | UUID | str) -> str:
    job_id = job.id if isinstance(job, JobInfo) else job
    try:
        return str(job_id if isinstance(job_id, UUID) else UUID(job_id))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"{repr(job_id)[:_LONGEST_SHOWN]} is not a job's id: give a UUID, as enqueue returns it in handle.id"
        ) from None


def encode_event(name: str, value: Any, sealer: Sealer = PLAIN) -> str:
    """Encode the value of an event or signal as JSON. Raises `BadArgs` if it cannot be stored."""
    try:
        return encode_value(value, LARGEST_VALUE, "an event", "event {!r} has", name, sealer=sealer)
    except BadValue as error:
        raise BadArgs(str(error)) from None


def check_step(step: str) -> str:
    if not _is_storable(step):
        raise ConfigError(
            f"step is {quoted(step)}: it must be text, without NUL; info().steps lists the steps of a job"
        )
    return step


def check_reason(reason: str | None) -> str | None:
    if reason is None:
        return None
    if not _is_storable(reason):
        raise BadArgs(f"reason is {quoted(reason)}: it must be text, without NUL")
    if len(reason) > _LONGEST_REASON:
        raise BadArgs(f"reason has {len(reason)} characters: the limit is {_LONGEST_REASON}")
    return reason


def _is_storable(text: object) -> bool:
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
