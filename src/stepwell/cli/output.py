"""Print tables and sentences for people, or one JSON document for programs.

Names, messages and tracebacks may come from anybody who can enqueue a job. Control characters in them are escaped, and
nothing in them is read as markup.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from stepwell.values.duration import describe
from stepwell.values.json_copy import copied, shallow
from stepwell.values.redaction import Redaction
from stepwell.web.sendable import to_json

if TYPE_CHECKING:
    from rich.console import Console

Row = TypeVar("Row")

_WIDEST_WHEN_PIPED = 200
_NARROWEST = 8
_GAP = "  "
_DEEPEST = 500
"""How deep a JSON document is nested at least, if not all of it can be written."""
STYLES = {
    "ok": "green",
    "warning": "yellow",
    "problem": "bold red",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "paused": "yellow",
    "dead": "red",
}


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table. If the terminal is narrow, columns with `cut` are shortened; ids never are."""

    title: str
    cell: Callable[[Row], object]
    cut: bool = False
    right: bool = False


def clean(text: str, *, lines: bool = False) -> str:
    """Escape what a terminal might act on, such as "\\x1b". `lines` keeps line breaks."""
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    text = text.replace("\t", "    ") if lines else text
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode() for char in text
    )


def say(*lines: str) -> None:
    """Print lines, with control characters escaped."""
    for line in lines:
        sys.stdout.write(clean(line, lines=True) + "\n")


def complain(message: str) -> None:
    """Print an error as one line on stderr."""
    sys.stderr.write(f"stepwell: {clean(' '.join(message.split()))}\n")


def warn(message: str) -> None:
    complain(f"warning: {message}")


def table(rows: Iterable[Row], columns: Sequence[Column[Row]], *, empty: str = "") -> None:
    """Print a table, or `empty` if there are no rows. On a terminal, cells that hold a state are coloured."""
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[_text(column.cell(row)) for column in columns] for row in rows]
    if not cells:
        say(empty)
        return
    widths = [
        max([len(column.title), *(cell_len(row[index]) for row in cells)]) for index, column in enumerate(columns)
    ]
    widths = _fit(columns, widths)
    out = _console()
    out.print(_line(columns, widths, [Text(column.title, "bold") for column in columns]), soft_wrap=True)
    for row in cells:
        texts = [Text(cell, STYLES.get(cell, "")) for cell in row]
        out.print(_line(columns, widths, texts), soft_wrap=True)


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print one name and value per line; further lines of a value are indented below it."""
    shown = [(name, "" if value is None else clean(str(value), lines=True)) for name, value in pairs]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        first, *more = value.split("\n")
        say(f"{name:<{width}}{_GAP}{first}".rstrip(), *(f"{'':<{width}}{_GAP}{line}".rstrip() for line in more))


def status(word: str, text: str) -> None:
    from rich.text import Text

    line = Text.assemble((f"{word:<8}", STYLES.get(word, "")), _GAP, clean(text))
    _console().print(line, soft_wrap=True)


def styled(parts: Iterable[tuple[str, str]]) -> None:
    """Print a line of texts, each with its style."""
    from rich.text import Text

    _console().print(Text.assemble(*((clean(text), style) for text, style in parts)), soft_wrap=True)


def dump(value: object) -> None:
    """Print one JSON document: ASCII only, times in UTC as ISO 8601, and numbers that JSON does not have as text."""
    redaction = hidden_fields()

    def printable(name: str | None, field: Any, depth: int) -> Any:
        return redaction.hidden(name, _plain(field), depth)

    document = copied(value, printable)
    try:
        text = to_json(document, indent=2, only_ascii=True)
    except RecursionError:
        text = to_json(shallow(document, _DEEPEST), indent=2, only_ascii=True)
    sys.stdout.write(text + "\n")


def record(value: Any, *without: str) -> dict[str, Any]:
    """A dataclass or struct as a dict for `dump`."""
    is_struct = isinstance(value, msgspec.Struct)
    names = value.__struct_fields__ if is_struct else [field.name for field in dataclasses.fields(value)]
    return {name: getattr(value, name) for name in names if name not in without}


def compact(value: object, indent: int | None = None) -> str:
    """A value as JSON for people, in one line unless it is to be indented."""
    shown = hide(value)
    try:
        return json.dumps(shown, ensure_ascii=False, indent=indent)
    except RecursionError:
        return json.dumps(shallow(shown, _DEEPEST), ensure_ascii=False, indent=indent)


def hide(value: object) -> Any:
    """The value without the fields that STEPWELL_REDACT names, such as "password,token"."""
    return hidden_fields().apply(value)


def hidden_fields() -> Redaction:
    named = os.environ.get("STEPWELL_REDACT", "")
    return Redaction(name for name in named.split(",") if name.strip())


def ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return ""
    length = (now - at).total_seconds()
    if abs(length) < 1:
        return "now"
    return f"{describe(length)} ago" if length > 0 else f"in {describe(-length)}"


def _text(cell: object) -> str:
    return "" if cell is None else clean(str(cell))


@cache
def _console() -> Console:
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def _fit(columns: Sequence[Column[Any]], widths: list[int]) -> list[int]:
    """Narrow the widest of the columns with `cut` until the table fits."""
    out = _console()
    if not out.is_terminal:
        return [
            min(width, _WIDEST_WHEN_PIPED) if column.cut else width
            for column, width in zip(columns, widths, strict=True)
        ]
    widths = [min(width, out.width) if column.cut else width for column, width in zip(columns, widths, strict=True)]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > out.width:
        widest = max((index for index, column in enumerate(columns) if column.cut), key=widths.__getitem__, default=0)
        if not columns[widest].cut or widths[widest] <= _NARROWEST:
            break  # the terminal wraps the lines, which is better than shortened ids
        widths[widest] -= 1
    return widths


def _line(columns: Sequence[Column[Any]], widths: Sequence[int], texts: Sequence[Any]) -> Any:
    from rich.text import Text

    line = Text(no_wrap=True)
    for index, (column, width, text) in enumerate(zip(columns, widths, texts, strict=True)):
        if column.cut:
            text.truncate(width, overflow="ellipsis")
        text.align("right" if column.right else "left", width)
        line.append_text(text)
        if index < len(columns) - 1:
            line.append(_GAP)
    line.rstrip()
    return line


def _plain(value: object) -> object:
    """A value as JSON has it, apart from what it contains."""
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return record(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if value is None or isinstance(value, bool | int | float | str | dict | list | tuple):
        return cast("object", value)
    return str(value)
