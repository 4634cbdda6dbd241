"""The table of `stepwell top`: its keys, and its cells."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from stepwell.cli.output import STYLES
from stepwell.cli.top.tables import cut


class Rows(DataTable[Text]):
    """The table, with the keys of vi."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("g", "scroll_top", show=False),
        Binding("G", "scroll_bottom", show=False),
    ]


def cell(text: str, widest: int, right: bool) -> Text:
    # A Text, because the table would read a plain string as markup.
    return Text(cut(text, widest), STYLES.get(text, ""), justify="right" if right else "left", no_wrap=True)
