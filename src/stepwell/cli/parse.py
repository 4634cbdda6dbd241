"""Parse what was typed: durations, sizes, JSON, times, ids. What cannot be parsed is a usage error, exit code 2."""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from stepwell.errors import BadArgs, ConfigError, StepwellError
from stepwell.jobs.check import encode_event
from stepwell.values.bounds import check_name
from stepwell.values.duration import HUNDRED_YEARS, describe, seconds
from stepwell.values.policy import check_keep
from stepwell.values.template import as_stored

_RATE = re.compile(r"(\d{1,7})\s*/\s*(\S.*)")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*([kmgt])i?b?", re.IGNORECASE)


class UsageError(StepwellError):
    """The command line is wrong. The message says how to write it."""


@contextmanager
def usage_errors() -> Generator[None]:
    """Raise what the library refuses in this block as a usage error: the value was typed as an argument."""
    try:
        yield
    except (ConfigError, BadArgs) as error:
        raise UsageError(str(error)) from None


def name(typed: str, what: str) -> str:
    with usage_errors():
        return check_name(typed, what)


def limit_key(typed: str) -> str:
    """The key of a limit or rate as its jobs have it."""
    with usage_errors():
        return as_stored(typed, "KEY")


def duration(typed: str, option: str) -> float:
    with usage_errors():
        return seconds(typed, option)


def keep(typed: str, option: str) -> float:
    """How long to keep something, in seconds: a duration, or "forever"."""
    with usage_errors():
        return check_keep(typed, option)


def size(typed: str, option: str) -> int:
    """A size in bytes. As in Postgres, a megabyte is 1024 * 1024 bytes."""
    read = _SIZE.fullmatch(typed.strip())
    amount = float(read[1]) * 1024 ** "kmgt".index(read[2].lower()) * 1024 if read else 0
    if amount < 1:
        raise UsageError(f"{option} is {typed!r}: write it as '512MB' or '1.5GB'")
    return int(amount)


def rate(typed: str, option: str) -> tuple[int, float]:
    """A rate as a count and the seconds that it is for: "50/s", "10/30s"."""
    read = _RATE.fullmatch(typed.strip())
    wrong = UsageError(f"{option} is {typed!r}: write it as '50/s', '100/m' or '10/30s'")
    if read is None or int(read[1]) == 0:
        raise wrong
    try:
        per = seconds(read[2] if read[2][0].isdigit() else f"1{read[2]}", option, most=math.inf)
    except ConfigError:
        raise wrong from None  # its own error names only a part of what was typed
    if per == 0:
        raise UsageError(f"{option} is {typed!r}: the time cannot be 0")
    if per > HUNDRED_YEARS:
        raise UsageError(f"{option} is {typed!r}: the time is more than {describe(HUNDRED_YEARS)}")
    return int(read[1]), per


def moment(typed: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        raise UsageError(f"{option} is {typed!r}: write it as 2030-12-31T23:59:00+01:00") from None
    if at.utcoffset() is None:
        raise UsageError(f"{option} is {typed!r}, without a time zone: write it as 2030-12-31T23:59:00+01:00")
    return at


def json_object(typed: str, what: str) -> dict[str, Any]:
    value = _decode(typed, what, "'{\"n\": 1}'")
    if not isinstance(value, dict):
        raise UsageError(f"{what} is a JSON {_kind(value)}, not an object: write it as '{{\"n\": 1}}'")
    return value  # pyright: ignore[reportUnknownVariableType]


def json_value(typed: str | None, what: str) -> str | None:
    """Any JSON value, as it was typed."""
    if typed is not None:
        with usage_errors():
            encode_event(what, _decode(typed, what, "'{\"n\": 1}', 7 or '\"text\"'"))
    return typed


def job_id(typed: str) -> str:
    try:
        return str(UUID(typed))
    except ValueError:
        raise UsageError(f"{typed!r} is not a job's id: give a UUID, as 'stepwell jobs list' shows it") from None


def bulk_id(typed: str) -> str:
    try:
        return str(UUID(typed))
    except ValueError:
        raise UsageError(f"{typed!r} is not the id of a bulk operation: 'stepwell bulk' lists them") from None


def worker_id(typed: str) -> UUID:
    try:
        return UUID(typed)
    except ValueError:
        raise UsageError(f"{typed!r} is not a worker's id: give a UUID, as 'stepwell workers' shows it") from None


def _decode(typed: str, what: str, example: str) -> Any:
    try:
        return msgspec.json.decode(typed)
    except msgspec.DecodeError as error:
        raise UsageError(f"{what} is not JSON ({error}): write it as {example}, quoted for the shell") from None
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply") from None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "number"
