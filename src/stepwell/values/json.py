"""Encode values as JSON and back, in one way for args, results and steps. Refuses what JSON or Postgres cannot
store."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast

import msgspec

from stepwell.errors import BadValue
from stepwell.errors.text import article
from stepwell.values.sealing import PLAIN, Sealer

# The largest limit that can be set in a database. Most databases accept less ("stepwell sizes").
LARGEST_VALUE = 512 * 1024 * 1024
_LEAVES = (str, int, float, bytes, type(None), type)
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def encode_other(value: Any) -> Any:
    # pydantic models, without importing pydantic
    dump: Any = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"objects of type {type(value).__name__} are not supported")
    return dump(mode="json")


encoder = msgspec.json.Encoder(enc_hook=encode_other)


def encode_value(value: Any, most: int, setting: str, what: str, *about: str, sealer: Sealer = PLAIN) -> str:
    """Encode a value, and seal it. Raises `BadValue` if it cannot be stored; `what`, formatted with `about`, begins its
    message."""
    if value is None:
        return "null"
    try:
        encoded = encoder.encode(value)
    except Exception as error:
        problem = f", which does not encode as JSON: {error}"
        if inspect.iscoroutine(value):
            value.close()
            problem = ": write 'await' before the call that made it, in a function with 'async def'"
    else:
        text = encoded.decode()  # searching short bytes takes Python ten times as long as searching short text
        if "\\u0000" in text and NUL.search(text):
            problem = " that holds a NUL character, which text cannot store"
        elif may_hold_nan(text) and holds_nan(value):
            problem = " that holds NaN or infinity, which JSON cannot express"
        elif (size := len(encoded) if (stored := sealer.seal(text)) is text else len(stored)) > most:
            problem = f" of {size} bytes, more than the {most} of {setting}: store the data elsewhere and keep "
            problem += "a reference, or raise that" if setting.startswith("App(") else "a reference"
        else:
            return stored
    raise BadValue(f"{what.format(*about)} {article(type(value).__name__)}{problem}")


def new_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Make a decoder for values of an annotation. Raises `TypeError` if JSON cannot hold such values."""
    return msgspec.json.Decoder(kind, dec_hook=_decode_other)


def set_defaults(value: Any) -> None:
    """Give every dataclass in a decoded value the fields that it has by default, so that equal ones encode alike.
    msgspec leaves a field that JSON does not have to the class, and then does not encode it."""
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


def may_hold_nan(text: str) -> bool:
    """Whether JSON that msgspec wrote may come from NaN or infinity: it writes null, or "nan" or "inf" as a key."""
    return "null" in text or 'nan":' in text or 'inf":' in text


def holds_nan(value: Any) -> bool:
    try:
        pending: list[Any] = [msgspec.to_builtins(value, enc_hook=encode_other)]
    except RecursionError:
        return False  # nested too deep to search; reading it back fails as well
    while pending:
        inner = pending.pop()
        if isinstance(inner, float) and not math.isfinite(inner):
            return True
        if isinstance(inner, dict):
            pending.extend(cast("dict[Any, Any]", inner).keys())
            pending.extend(cast("dict[Any, Any]", inner).values())
        elif isinstance(inner, list | tuple):
            pending.extend(cast("list[Any]", inner))
    return False


def wrong_names(encoded: str, known: Collection[str] | None, needed: Collection[str]) -> str | None:
    """Say which names of a JSON object are unknown and which are missing; None: no name is wrong, or the JSON is not an
    object. Without `known`, any name is allowed."""
    try:
        given = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
    return say_wrong_names(
        [name for name in given if known is not None and name not in known],
        [name for name in needed if name not in given],
    )


def say_wrong_names(unknown: list[str], missing: list[str]) -> str | None:
    said = [f"it does not know {_listed(unknown)}"] if unknown else []
    return "; ".join([*said, f"it needs {_listed(missing)}"] if missing else said) or None


def shape_of(known: Collection[str], needed: Collection[str]) -> str:
    """Describe the names for `wrong_names` in one line. Two equal shapes find the same names wrong."""
    return ",".join(sorted(name if name in needed else f"{name}=" for name in known))


def _listed(names: list[str]) -> str:
    # Callers choose the names: some may be long, some not text, and there may be many.
    shown = ", ".join(repr(f"{str(name)[:50]}..." if len(str(name)) > 50 else name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _decode_other(kind: type[Any], value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"values of type {kind.__name__} are not supported")
    return validate(value)
