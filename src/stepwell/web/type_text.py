"""Types as text, for forms: as a person would annotate them, and as an outline of the JSON that they take."""

from __future__ import annotations

import json
import types
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, Union
from uuid import UUID

from msgspec import inspect

EXAMPLES: dict[Any, str] = {
    datetime: "2026-01-31T12:00:00Z",
    date: "2026-01-31",
    time: "12:00:00",
    timedelta: "PT5M",
    UUID: "0195a3c2-7d1e-7b4f-9c2d-3e5f60718293",
    Decimal: "9.90",
}
"""Types that JSON writes as text, and how."""
_MOST = 1000
_PLAIN: dict[Any, str] = {
    inspect.NoneType: "null",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: '"base64"',
    inspect.DateTimeType: f'"{EXAMPLES[datetime]}"',
    inspect.DateType: f'"{EXAMPLES[date]}"',
    inspect.TimeType: f'"{EXAMPLES[time]}"',
    inspect.TimeDeltaType: f'"{EXAMPLES[timedelta]}"',
    inspect.UUIDType: f'"{EXAMPLES[UUID]}"',
    inspect.DecimalType: f'"{EXAMPLES[Decimal]}"',
}


def type_text(annotation: Any) -> str:
    """The annotation as a person would write it, without modules."""
    if annotation is Any:
        return "any JSON"
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_text(inner[0])
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_text, inner))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if annotation is type(None):
        return "None"
    if origin is not None and inner:
        return f"{_name(origin)}[{', '.join('...' if one is ... else type_text(one) for one in inner)}]"
    return _name(annotation)


def _name(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or str(annotation)


def outline(annotation: Any) -> str:
    """The JSON of a type, such as `{"sku": str, "count"?: int}`: a name with a question mark may be left out. A type
    within itself is only named. Empty: it is not known."""
    try:
        text = _outline(inspect.type_info(annotation), ())
    except Exception:  # an annotation may be anything, and the form works without this
        return ""
    return text if len(text) <= _MOST else text[:_MOST] + "…"


def _outline(kind: inspect.Type, within: tuple[Any, ...]) -> str:
    match kind:
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            return _name(kind.cls) if kind.cls in within else _of_fields(kind, (*within, kind.cls))
        case inspect.CustomType():
            return _name(kind.cls) if kind.cls in within else _of_model(kind.cls, (*within, kind.cls))
        case inspect.CollectionType():
            return f"[{_outline(kind.item_type, within)}, …]"
        case inspect.TupleType():
            return f"[{', '.join(_outline(item, within) for item in kind.item_types)}]"
        case inspect.DictType():
            return f"{{{_outline(kind.key_type, within)}: {_outline(kind.value_type, within)}, …}}"
        case inspect.UnionType():
            return " | ".join(_outline(one, within) for one in kind.types)
        case inspect.EnumType():
            return " | ".join(json.dumps(member.value) for member in kind.cls)
        case inspect.LiteralType():
            return " | ".join(map(json.dumps, kind.values))
        case _:
            return _PLAIN.get(type(kind), "any")


def _of_fields(
    kind: inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType,
    within: tuple[Any, ...],
) -> str:
    if isinstance(kind, inspect.NamedTupleType) or (isinstance(kind, inspect.StructType) and kind.array_like):
        return f"[{', '.join(_outline(field.type, within) for field in kind.fields)}]"
    fields: list[str] = []
    if isinstance(kind, inspect.StructType) and kind.tag_field is not None:
        fields.append(f"{json.dumps(kind.tag_field)}: {json.dumps(kind.tag)}")
    fields += [_field(field.encode_name, field.type, within, required=field.required) for field in kind.fields]
    return f"{{{', '.join(fields)}}}"


def _of_model(model: Any, within: tuple[Any, ...]) -> str:
    """A model of pydantic, without importing pydantic."""
    fields: dict[str, Any] | None = getattr(model, "model_fields", None)
    if fields is None:
        return _name(model)
    parts = [
        _field(field.alias or name, inspect.type_info(field.annotation), within, required=field.is_required())
        for name, field in fields.items()
    ]
    return f"{{{', '.join(parts)}}}"


def _field(name: str, kind: inspect.Type, within: tuple[Any, ...], *, required: bool) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}{'' if required else '?'}: {_outline(kind, within)}"
