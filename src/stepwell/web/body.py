"""The fields of an act, from the body of a request: URL-encoded, or as a JSON object."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted
from stepwell.web.sendable import LONE_SURROGATE

# A browser sends these only if they are set. A program may also send false.
_FLAGS = ("more", "from_start")
# The only field that may be given several times.
_LISTS = ("id",)


def read_fields(body: bytes, content_type: str) -> dict[str, list[str]]:
    """Each field with its values. Raises `ConfigError` with the name of a wrong one."""
    try:
        if content_type.startswith("application/json"):
            given = cast("dict[str, Any]", json.loads(body or b"{}")).items()
        else:
            return _from_form(body)
    except (ValueError, AttributeError, RecursionError):
        raise ConfigError("the form cannot be read: send its fields URL-encoded, or as a JSON object") from None
    fields = {name: _texts(name, value) for name, value in given if _is_given(name, value)}
    check_storable((name, value) for name, values in fields.items() for value in values)
    return fields


def _from_form(body: bytes) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for name, value in parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2000):
        fields.setdefault(name, []).append(value)
    check_storable((name, value) for name, values in fields.items() for value in values)
    return fields


def check_known(given: Mapping[str, int], known: Collection[str], what: str) -> None:
    """Refuse names that a page or an act does not know, and those that are given more than once: a filter that is
    ignored would choose more jobs than were meant. `given` says how often each name is given. A known name that ends
    with a dot stands for all that begin with it."""
    groups = tuple(name for name in known if name.endswith("."))
    for name, times in given.items():
        if name not in known and not name.startswith(groups):
            takes = ", ".join(f"{one}NAME" if one in groups else one for one in known if one != "back") or "none"
            raise ConfigError(f"{name[:100]!r} is no {what} here: it takes {takes}")
        if times > 1 and name not in _LISTS:
            raise ConfigError(f"{quoted(name)} is given {times} times: give it once")


def check_storable(fields: Iterable[tuple[str, str]]) -> None:
    """Refuse text that Postgres cannot store, and that no page can be asked about."""
    for name, value in fields:
        for text in (name, value):
            if "\0" in text or LONE_SURROGATE.search(text):
                raise ConfigError(
                    f"{quoted(name)} has a NUL character or half a character (a lone surrogate): leave it out"
                )


def _is_given(name: str, value: Any) -> bool:
    """Null means that a field is not given, and so does false for a flag."""
    if name not in _FLAGS or value is None:
        return value is not None
    if value in (True, "1"):
        return True
    if value in (False, ""):
        return False
    raise ConfigError(f"{name} is {quoted(value)}: it must be true or false")


def _texts(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        return [_text(name, value)]
    if name not in _LISTS:
        raise ConfigError(f"{name} is a list: give one value, and a list that is the value itself as JSON in a string")
    return [_text(name, one) for one in cast("list[Any]", value) if one is not None]


def _text(name: str, value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except (RecursionError, ValueError):
        raise ConfigError(f"{name} is nested too deep, or has a number that is too large") from None
