"""Complete decoded dataclasses: a field that JSON leaves out has its default from the class, so it is not encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast

import msgspec

_LEAVES = (str, int, float, bytes, type(None), type)


def set_defaults(value: Any) -> None:
    """Give every dataclass in a decoded value the fields that it has by default, so that equal ones encode alike."""
    if isinstance(value, _LEAVES):
        return
    if is_dataclass(value):
        kind, own = type(value), getattr(value, "__dict__", None)
        for field in fields(value):
            # With slots, the class has no default, and the object has all fields.
            in_class = field.default is not MISSING and getattr(kind, field.name, MISSING) is field.default
            if own is not None and in_class and field.name not in own:
                own[field.name] = field.default
            set_defaults(getattr(value, field.name, None))
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            set_defaults(getattr(value, name))
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[Any, Any]", value).values():
            set_defaults(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in cast("list[Any]", value):
            set_defaults(inner)
