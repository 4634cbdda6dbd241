"""The filters of the list of jobs: read from the URL, and written back to it, so that every view can be shared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.datastructures import QueryParams

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted
from stepwell.jobs.filter import check_text
from stepwell.values.duration import seconds
from stepwell.values.job import FINISHED, LIVE
from stepwell.values.json import NUL
from stepwell.values.redaction import Redaction
from stepwell.web.reads.jobs import Search
from stepwell.web.sendable import LONE_SURROGATE
from stepwell.web.visit import Refused
from stepwell.web.wording import to_time

STATES: tuple[str, ...] = (*LIVE, *FINISHED)
NAMES = ("state", "queue", "task", "owner", "worker", "metadata", "arg", "error", "failure", "since", "until", "sort")
_TEXT = ("queue", "task", "owner", "metadata", "arg", "error")
"""Filters whose spaces count, also at the ends: names may begin or end with one."""
AGES = ("newest", "oldest")
"""Orders by age: a list in such an order has no last page."""
SORTS = {"due": "due first", "priority": "highest priority first", "runtime": "longest run first"}
"""Other orders, over all jobs that match or over the newest of them."""
PAGE = 50
_MOST = 200
_PATIENCE = 150


@dataclass(frozen=True, slots=True)
class JobFilters:
    """The filters of one view."""

    given: dict[str, str]
    """As they were given; empty ones are left out."""
    search: Search
    before: UUID | None
    sort: str
    offset: int
    """For orders other than by age: how many jobs come before this page."""
    limit: int
    milliseconds: int

    @property
    def oldest_first(self) -> bool:
        return self.sort == "oldest"

    @property
    def sorted_by(self) -> str | None:
        """The order, unless it is by age."""
        return self.sort if self.sort in SORTS else None

    @property
    def spaced(self) -> list[str]:
        """The filters that begin or end with a space: a person may not have meant to type it."""
        return [name for name, value in self.given.items() if any(part != part.strip() for part in value.split("="))]

    @property
    def narrowed(self) -> bool:
        """Whether there is a filter besides the state and the order."""
        return bool(set(self.given) - {"state", "sort"})


def read_filters(query: QueryParams, now: Any, redaction: Redaction) -> JobFilters:
    """Read the filters of a URL. Raises `Refused` with the name of a wrong one."""
    given = {name: query[name] if name in _TEXT else query[name].strip() for name in NAMES if query.get(name)}
    try:
        for name, value in given.items():
            check_text(value, name)
        state = given.get("state")
        if state is not None and state not in STATES:
            raise ConfigError(f"state is {quoted(state)}: it must be one of {', '.join(STATES)}")
        argument, value = _argument(given.get("arg"), redaction)
        search = Search(
            state,
            given.get("queue"),
            given.get("task"),
            given.get("owner"),
            to_uuid(given.get("worker"), "worker"),
            _metadata(given.get("metadata"), redaction),
            argument,
            value,
            given.get("error"),
            moment(given.get("since"), "since", now),
            moment(given.get("until"), "until", now),
            to_uuid(given.get("failure"), "failure"),
        )
        return JobFilters(
            given,
            search,
            to_uuid(query.get("before"), "before"),
            _sort(given.get("sort")),
            to_whole(query.get("offset"), "offset", 0, 1000, least=0),
            asked_limit(query, PAGE, _MOST),
            to_whole(query.get("patience"), "patience", _PATIENCE, 2000),
        )
    except ConfigError as error:
        raise Refused(400, str(error)) from None


def _sort(given: str | None) -> str:
    if given not in (None, *AGES, *SORTS):
        raise ConfigError(f"sort is {quoted(given)}: it must be one of {', '.join((*AGES, *SORTS))}")
    return given or "newest"


def _argument(given: str | None, redaction: Redaction) -> tuple[str | None, str | None]:
    """name=value, or a part of the args. A search must not find out what is hidden."""
    if given is None:
        return None, None
    name, equals, value = given.partition("=")
    if not equals:
        if redaction:
            raise ConfigError(f"arg is {quoted(given)}: some fields are hidden here, so write it as name=value")
        return None, given
    # Stripped before it is checked: what is checked must be what is searched.
    name = name.strip()
    if redaction.hides_path(name):
        raise ConfigError(f"arg names {quoted(name)}, which is hidden here")
    if redaction and value.lstrip()[:1] in ("{", "["):
        raise ConfigError("arg has a value of several fields: some are hidden here, so name one of them")
    return name, value


def _metadata(given: str | None, redaction: Redaction) -> str | None:
    """A JSON object, or name=value. The value is JSON, or else text."""
    if given is None:
        return None
    if given.lstrip().startswith("{"):
        try:
            wanted = json.loads(given)
        except (ValueError, RecursionError):
            raise ConfigError(f"metadata is {quoted(given)}: write it as name=value, or as a JSON object") from None
    else:
        name, equals, value = given.partition("=")
        if not equals:
            raise ConfigError(f"metadata is {quoted(given)}: write it as name=value, or as a JSON object")
        try:
            wanted = {name.strip(): json.loads(value)}
        except (ValueError, RecursionError):
            wanted = {name.strip(): value}
    if redaction.touches(wanted):
        raise ConfigError("metadata names a field that is hidden here")
    try:
        text = json.dumps(wanted, ensure_ascii=False, allow_nan=False)
    except (RecursionError, ValueError):
        raise ConfigError("metadata is nested too deep, or has a number that is too large") from None
    if NUL.search(text) or LONE_SURROGATE.search(text):
        raise ConfigError("metadata has a NUL character or half a character (a lone surrogate): no job has that")
    return text


def moment(given: str | None, what: str, now: Any) -> datetime | None:
    """A time, or how long ago."""
    if given is None:
        return None
    at = to_time(given)
    try:
        if at is not None and given[:1].isdigit() and "-" in given:
            return in_utc(at)
        return (to_time(now) or datetime.now(UTC)) - timedelta(seconds=seconds(given, what))
    except (ConfigError, OverflowError):
        raise ConfigError(
            f"{what} is {quoted(given)}: write how long ago, such as 2h, or a time: 2026-01-31T12:00"
        ) from None


def in_utc(at: datetime) -> datetime:
    """A time in UTC: Postgres knows fewer zones than Python. Raises `OverflowError` if there is no such year."""
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def to_uuid(given: str | None, what: str) -> UUID | None:
    try:
        return None if not given else UUID(given)
    except ValueError:
        raise ConfigError(f"{what} is {quoted(given)}: it must be an id") from None


def asked_number(query: QueryParams, name: str, most: int) -> int | None:
    """The number of a row, to continue a list from; None: it is not given."""
    given = query.get(name)
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= len(str(most)) and 1 <= int(given) <= most):
        raise Refused(400, f"{name} is {quoted(given)}: it must be a number from 1 to {most}")
    return int(given)


def asked_limit(query: QueryParams, default: int, most: int) -> int:
    """How many rows a list may have."""
    try:
        return to_whole(query.get("limit"), "limit", default, most)
    except ConfigError as error:
        raise Refused(400, str(error)) from None


def to_whole(given: str | None, what: str, default: int, most: int, *, least: int = 1) -> int:
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) < 9 and least <= int(given) <= most):
        raise ConfigError(f"{what} is {quoted(given)}: it must be a number from {least} to {most}")
    return int(given)
