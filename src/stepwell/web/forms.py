"""Forms made of a task's typed signature: a field for each argument, and the arguments from the fields.

A field that is left empty, an empty text and null are three things. Where the text of a field cannot tell them apart, a
choice beside it does: `as.NAME` says whether the argument is not given, so that its default applies, is what was typed,
is null, or is what was typed as JSON.
"""

from __future__ import annotations

import enum
import inspect
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Union

from stepwell.errors.text import quoted
from stepwell.jobs.task import Task
from stepwell.values.json import encoder
from stepwell.web.sendable import LONE_SURROGATE
from stepwell.web.type_text import EXAMPLES, outline, type_text
from stepwell.web.visit import Refused

Widget = Literal["text", "line", "number", "choice", "json"]
"""`text` may have several lines; `line` is a value that JSON writes as text, such as a time."""
Way = Literal["default", "value", "null", "json"]
WAYS: dict[Way, str] = {"default": "default", "value": "this value", "null": "null", "json": "this value, as JSON"}


@dataclass(frozen=True, slots=True)
class Field:
    """An argument as a field of a form. `value` is what stands in it."""

    name: str
    type: str
    """The annotation as a person would write it."""
    widget: Widget
    required: bool
    nullable: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    """Each as JSON, and as it is shown."""
    value: str = ""
    default: str | None = None
    """The default as JSON, to be shown; None: there is none, or JSON cannot express it."""
    way: Way = "value"
    """How the argument is given; only of a field with several ways."""
    outline: str = ""
    """The JSON that the argument takes, of a field with JSON in it."""
    example: str = ""
    """How such a value is written, such as a time."""

    @property
    def ways(self) -> list[tuple[Way, str]]:
        """The ways to give the argument, and their names; empty: the text tells. An empty number or JSON is not given,
        JSON may be null, and a choice has its default and null among its options."""
        found: list[Way] = [] if self.required else ["default"]
        found.append("value")
        if self.offers_null:
            found.append("null")
        if self.way == "json":
            found.append("json")
        if self.widget in ("choice", "json") or found == ["value"]:
            return []
        if self.widget != "text" and "null" not in found:
            return []
        labels = WAYS if self.default is None else {**WAYS, "default": f"default: {self.default[:60]}"}
        return [(way, labels[way]) for way in found]

    @property
    def offers_null(self) -> bool:
        """Whether null can be given, and is not what the default is anyway."""
        return self.nullable and (self.required or self.default != "null")

    @property
    def hint(self) -> str:
        """What stands in the field while it is empty: the default as it would be typed, or an example."""
        if self.widget != "line":
            return self.default if self.default is not None else "JSON" if self.widget == "json" else ""
        if self.default is not None and self.default != "null":
            return json.loads(self.default)
        return f"such as {self.example}" if self.default is None else f"null, or such as {self.example}"

    @property
    def rows(self) -> int:
        return min(max(self.value.count("\n") + 1, 3 if self.widget == "json" else 1), 12)


def fields_of(task: Task[..., Any], args: Mapping[str, Any] | None = None) -> list[Field]:
    """The fields for a task, filled with these args."""
    found = [_field(name, annotation, default) for name, annotation, default in task.codec.typed_arguments()]
    if args is None:
        return found
    return [_holding(field, args[field.name]) if field.name in args else field for field in found]


def filled(fields: list[Field], typed: Mapping[str, list[str]]) -> list[Field]:
    """The fields with what was typed into them, to show a form again."""
    found: list[Field] = []
    for field in fields:
        way = typed.get(f"as.{field.name}", [""])[0]
        value = typed.get(f"arg.{field.name}", [field.value])[0]
        if not way and value and field.way == "default":
            way = "value"
        found.append(replace(field, value=value, way=way if way in WAYS else field.way))
    return found


def arguments_from(fields: list[Field], typed: Mapping[str, list[str]]) -> dict[str, Any]:
    """The arguments by name, without those that are not given. Whether they fit, the task decides."""
    names = [field.name for field in fields]
    for given in typed:
        kind, dot, name = given.partition(".")
        if dot and kind in ("arg", "as") and name not in names:
            raise Refused(400, f"the task has no argument {name[:100]!r}: it takes {', '.join(names) or 'none'}")
    found: dict[str, Any] = {}
    for field in fields:
        text = next(iter(typed.get(f"arg.{field.name}") or ()), None)
        match typed.get(f"as.{field.name}", [""])[0]:
            case "":
                # An empty number or choice is not given. An empty text is a text.
                if text is not None and (text or field.required or field.widget == "text"):
                    found[field.name] = _value(field, text)
            case "value":
                found[field.name] = _value(field, text or "")
            case "json":
                found[field.name] = _loaded(field, text or "")
            case "default" | "null" as way:
                if text:
                    raise Refused(
                        400, f"argument {field.name!r} is to be {way}, but has a value: clear it, or choose it"
                    )
                if way == "null":
                    found[field.name] = None
            case other:
                raise Refused(400, f"as.{field.name} is {quoted(other)}: it must be one of {', '.join(WAYS)}")
    return found


def _value(field: Field, text: str) -> Any:
    if field.widget in ("text", "line"):
        # A browser ends lines with CRLF.
        return text.replace("\r\n", "\n")
    return _loaded(field, text)


def _loaded(field: Field, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if field.widget == "number":
            raise Refused(400, f"argument {field.name!r} is {quoted(text)}: it must be a number") from None
        raise Refused(400, f"argument {field.name!r} is not JSON: write text in double quotes") from None


def _holding(field: Field, value: Any) -> Field:
    """The field with the argument of a job in it, so that the form gives the same one."""
    if value is None and field.widget not in ("choice", "json"):
        if field.offers_null:
            return replace(field, way="null")
        return field if not field.required else replace(field, value="null", way="json")
    if field.widget == "choice":
        return _choosing(field, _json(value) or "")
    if field.widget in ("text", "line") and isinstance(value, str):
        # A browser makes one kind of line break of all, and no page can send half a character.
        if field.widget == "line" or not ("\r" in value or LONE_SURROGATE.search(value)):
            return replace(field, value=value, way="value")
        return replace(field, value=json.dumps(value), way="json")
    way: Way = "json" if field.widget == "text" else "value"
    return replace(field, value=_json(value) or "", way=way)


def _choosing(field: Field, value: str) -> Field:
    known = value in dict(field.choices) or (value == "null" and field.nullable)
    # The task has changed. If no option had the value, a browser would choose the first one.
    choices = field.choices if known else (*field.choices, (value, f"{value}: no longer a choice"))
    if value == "null" and field.nullable and not field.offers_null:
        return field  # it is the default
    return replace(field, value=value, choices=choices)


def _field(name: str, annotation: Any, default: Any) -> Field:
    inner, nullable = _without_none(annotation)
    choices = _choices(inner)
    widget: Widget
    if choices:
        widget = "choice"
    elif inner is bool:
        widget, choices = "choice", (("true", "true"), ("false", "false"))
    elif inner in (int, float):
        widget = "number"
    elif inner is str:
        widget = "text"
    else:
        # Types that JSON writes as text, such as times and ids, are typed without quotes.
        widget = "line" if isinstance(inner, type) and inner in EXAMPLES else "json"
    required = default is inspect.Parameter.empty
    return Field(
        name,
        type_text(annotation),
        widget,
        required,
        nullable,
        choices,
        default=None if required else _default(default),
        way="value" if required else "default",
        outline=outline(annotation) if widget == "json" and inner is not Any else "",
        example=EXAMPLES.get(inner, "") if widget == "line" else "",
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    annotation = _without_notes(annotation)
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation, annotation is type(None)
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    nullable = len(members) < len(typing.get_args(annotation))
    return (_without_notes(members[0]) if len(members) == 1 else annotation), nullable


def _without_notes(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


def _choices(annotation: Any) -> tuple[tuple[str, str], ...]:
    if typing.get_origin(annotation) is Literal:
        values = [(_json(value), "null" if value is None else str(value)) for value in typing.get_args(annotation)]
        return tuple((text, name) for text, name in values if text is not None)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = list(annotation)
        if all(isinstance(member.value, str | int) for member in members):
            return tuple((_json(member.value) or "", member.name) for member in members)
    return ()


def _json(value: Any) -> str | None:
    try:
        text = json.dumps(value, ensure_ascii=False)
        return json.dumps(value) if LONE_SURROGATE.search(text) else text
    except (TypeError, ValueError, RecursionError):
        return None


def _default(value: Any) -> str | None:
    """A default as JSON. Unlike an argument, it may be a value that only code has, such as a time or a dataclass."""
    text = _json(value)
    try:
        return encoder.encode(value).decode() if text is None else text
    except Exception:  # it may be anything
        return None
