"""Times as instants: equal times in different zones are written alike, for keys that are equal for equal arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

# A time with an offset, as msgspec and pydantic write it into JSON. UTC is "Z".
_OFFSET = re.compile(r"\d[+-]\d\d:\d\d\"")


def in_utc(time: datetime) -> datetime:
    """Return the same instant in UTC. A time without a zone is returned as it is."""
    try:
        return time if time.utcoffset() is None else time.astimezone(UTC)
    except OverflowError:
        return time  # in UTC it would be before the year 1 or after 9999


def may_hold_offsets(text: str) -> bool:
    """Whether JSON may hold a time that is not in UTC."""
    return _OFFSET.search(text) is not None


def with_instants(value: Any, encode_other: Callable[[Any], Any]) -> Any:
    """Return plain values as JSON has them, except that times are datetimes in UTC. Raises `TypeError` if a dict has
    times as its keys."""

    def encode(model: Any) -> Any:
        # JSON of pydantic has text for times, which cannot be told from other text. The same as Python values has them.
        return _merged(model.model_dump(), encode_other(model)) if hasattr(model, "model_dump") else encode_other(model)

    plain = msgspec.to_builtins(value, builtin_types=(datetime,), str_keys=True, order="sorted", enc_hook=encode)
    return _converted(plain)


def _converted(value: Any) -> Any:
    if isinstance(value, datetime):
        return in_utc(value)
    if isinstance(value, dict):
        return {key: _converted(inner) for key, inner in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_converted(inner) for inner in cast("list[Any]", value)]
    return value


def _merged(value: Any, dumped: Any) -> Any:
    """Return `dumped`, with the times of `value`, which has the same form, in place of their text."""
    if isinstance(value, datetime) and isinstance(dumped, str):
        return value if may_hold_offsets(f'{dumped}"') else dumped
    if isinstance(value, Mapping) and isinstance(dumped, dict):
        values, items = cast("Mapping[Any, Any]", value), cast("dict[str, Any]", dumped)
        if len(values) == len(items):
            return {
                name: _merged(inner, text) for inner, (name, text) in zip(values.values(), items.items(), strict=True)
            }
    elif isinstance(value, list | tuple) and isinstance(dumped, list):
        inners, texts = cast("list[Any]", value), cast("list[Any]", dumped)
        if len(inners) == len(texts):
            return [_merged(inner, text) for inner, text in zip(inners, texts, strict=True)]
    return cast("Any", dumped)
