"""Cut an answer to a size that fits the context of an assistant, and say where it was cut."""

from __future__ import annotations

import json
from typing import Any, cast

MOST = 40_000
"""The characters of an answer, as JSON."""
# The longest text and list, tried in this order until the answer is short enough.
_STEPS = ((4000, 100), (1000, 50), (300, 20), (100, 5), (40, 1))


def bounded(value: Any, most: int = MOST) -> Any:
    """Return the value with long texts and lists cut, no more than needed."""
    if _size(value) <= most:
        return value
    cut: Any = None
    for text, items in _STEPS:
        cut = _cut(value, text, items)
        if _size(cut) <= most:
            return cut
    return {"cut": "the answer is too large even without its values: ask for less", "beginning": json.dumps(cut)[:2000]}


def _cut(value: Any, text: int, items: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= text else f"{value[:text]}… ({len(value) - text} characters were cut)"
    if isinstance(value, list):
        found = cast("list[Any]", value)
        kept = [_cut(item, text, items) for item in found[:items]]
        return kept if len(found) <= items else [*kept, f"… ({len(found) - items} more were cut)"]
    if isinstance(value, dict):
        fields = list(cast("dict[str, Any]", value).items())
        # Fields of a page have few names. An object with many is a value of a job.
        kept_fields = {name[:text]: _cut(field, text, items) for name, field in fields[: max(items, 40)]}
        return kept_fields if len(fields) <= max(items, 40) else {**kept_fields, "…": f"{len(fields)} fields in all"}
    return value


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))
