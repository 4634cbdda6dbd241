"""Cut an answer to a size that fits the context of an assistant, and say where it was cut."""

from __future__ import annotations

import json
from typing import Any, cast

from stepwell.values.json_copy import shallow

MOST = 40_000
"""The characters of an answer, as JSON."""
# An answer that is nested deeper cannot be sent.
_DEEPEST = 100
_DEEPER = "… (what is in here was cut)"
# The longest text and list, and how many objects and lists something is in at most, tried in this order until the
# answer is short enough. Pages are three to five deep, and what is deeper is a value of a job. Down to 5, only such
# values are cut; at 3, also what is in a row of a list, such as the jobs of a worker; at 2, the rows themselves.
_STEPS = (
    (4000, 100, _DEEPEST),
    (1000, 50, 20),
    (300, 20, 10),
    (300, 20, 5),
    (300, 20, 3),
    (100, 5, 5),
    (100, 5, 3),
    (40, 1, 3),
    (40, 1, 2),
)


def bounded(value: Any, most: int = MOST) -> Any:
    """Return the value with long texts and lists cut, no more than needed, and what is nested too deep."""
    value = shallow(value, _DEEPEST)
    if _size(value) <= most:
        return value
    cut: Any = None
    for text, items, depth in _STEPS:
        cut = _cut(value, text, items, depth)
        if _size(cut) <= most:
            return cut
    return {"cut": "the answer is too large even without its values: ask for less", "beginning": json.dumps(cut)[:2000]}


def _cut(value: Any, text: int, items: int, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= text else f"{value[:text]}… ({len(value) - text} characters were cut)"
    if not depth and isinstance(value, dict | list):
        return _DEEPER if value else cast("object", value)
    if isinstance(value, list):
        found = cast("list[Any]", value)
        kept = [_cut(item, text, items, depth - 1) for item in found[:items]]
        return kept if len(found) <= items else [*kept, f"… ({len(found) - items} more were cut)"]
    if isinstance(value, dict):
        fields = list(cast("dict[str, Any]", value).items())
        # Fields of a page have few names. An object with many is a value of a job.
        kept_fields = {name[:text]: _cut(field, text, items, depth - 1) for name, field in fields[: max(items, 40)]}
        return kept_fields if len(fields) <= max(items, 40) else {**kept_fields, "…": f"{len(fields)} fields in all"}
    return value


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))
