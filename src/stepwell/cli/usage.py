"""Read what was typed: lengths of time, JSON, times, ids. What cannot be read is a usage error, exit code 2."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from stepwell.errors import BadArgs, ConfigError, StepwellError
from stepwell.jobs.check import encode_event
from stepwell.values.duration import seconds
from stepwell.values.names import check_name

_SIZE = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*([kmgt])i?b?", re.IGNORECASE)


class Usage(StepwellError):
    """The command line does not say what to do; the message says how to write it."""


@contextmanager
def refusing() -> Generator[None]:
    """Within this, what is refused was typed as an option."""
    try:
        yield
    except (ConfigError, BadArgs) as error:
        raise Usage(str(error)) from None


def name(typed: str, what: str) -> str:
    """The name of a queue or a task."""
    with refusing():
        return check_name(typed, what)


def length(typed: str, option: str) -> float:
    """A length of time in seconds."""
    with refusing():
        return seconds(typed, option)


def size(typed: str, option: str) -> int:
    """An amount of memory in bytes; a megabyte has 1024 times 1024, as in Postgres."""
    read = _SIZE.fullmatch(typed.strip())
    amount = float(read[1]) * 1024 ** "kmgt".index(read[2].lower()) * 1024 if read else 0
    if amount < 1:
        raise Usage(f"{option} is {typed!r}: write it as '512MB' or '1.5GB'")
    return int(amount)


def moment(typed: str, option: str) -> datetime:
    """A point in time."""
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        raise Usage(f"{option} is {typed!r}: write it as 2030-12-31T23:59:00+01:00") from None
    if at.utcoffset() is None:
        raise Usage(f"{option} is {typed!r}, without a time zone: write it as 2030-12-31T23:59:00+01:00")
    return at


def json_object(typed: str, what: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = msgspec.json.decode(typed)
    except msgspec.DecodeError as error:
        raise Usage(f"{what} is not JSON ({error}): write it as '{{\"n\": 1}}', in quotes for the shell") from None
    except RecursionError:
        raise Usage(f"{what} is nested too deeply") from None
    if not isinstance(value, dict):
        raise Usage(f"{what} is a JSON {_kind(value)}, not an object: write it as '{{\"n\": 1}}'")
    return value  # pyright: ignore[reportUnknownVariableType]


def json_value(typed: str | None, what: str) -> str | None:
    """Any JSON, as it was typed."""
    if typed is None:
        return None
    try:
        encode_event(what, msgspec.json.decode(typed))
    except msgspec.DecodeError as error:
        raise Usage(
            f"{what} is not JSON ({error}): write it as '{{\"n\": 1}}', 7 or '\"text\"', in quotes for the shell"
        ) from None
    except RecursionError:
        raise Usage(f"{what} is nested too deeply") from None
    except BadArgs as error:
        raise Usage(str(error)) from None
    return typed


def event_name(typed: str, what: str) -> str:
    """The name or the key of an event."""
    with refusing():
        return check_name(typed, what)


def job_id(typed: str) -> str:
    """A job's id."""
    try:
        return str(UUID(typed))
    except ValueError:
        raise Usage(f"{typed!r} is not a job's id: give a uuid, as 'stepwell jobs list' shows them") from None


def worker_id(typed: str) -> UUID:
    """A worker's id."""
    try:
        return UUID(typed)
    except ValueError:
        raise Usage(f"{typed!r} is not a worker's id: give a uuid, as 'stepwell workers' shows them") from None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "number"
