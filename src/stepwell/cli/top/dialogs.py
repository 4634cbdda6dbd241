"""Windows over the screen of `stepwell top`: a question, the keys, and one job."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from stepwell.cli.output import clean

KEYS = (
    ("1 to 5, h l, ← →", "choose a tab"),
    ("j k, ↓ ↑, g G", "move; to the first, to the last"),
    ("Enter", "show the job, or the last job of a failure"),
    ("/", "filter the rows by text; Enter keeps it, Escape ends it"),
    ("s", "jobs: the next state (running, scheduled, ready ...)"),
    ("space", "read again now"),
    ("?", "this help"),
    ("q", "quit"),
)
DANGEROUS = (
    ("R", "jobs: retry the job; failures: start to retry all of its failed jobs"),
    ("C", "jobs: cancel the job and its children"),
    ("N", "jobs: run a scheduled job now"),
    ("P", "queues, tasks, workers: pause or resume"),
    ("S", "workers: stop, once the running jobs have finished"),
    ("E", "pause or resume everything"),
)


class Question(ModalScreen[bool]):
    """Ask before an act. Only y is a yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q,enter", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = clean(question)

    def compose(self) -> ComposeResult:
        # A Text, so that names in the question are not read as markup.
        with Vertical(classes="window"):
            yield Static(Text(self.question))
            yield Static(Text("\ny  yes     n  no"))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Page(ModalScreen[None]):
    """Lines that can be scrolled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "close", "Close"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="window page"):
            yield Static(self.text)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_down(self) -> None:
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        self.query_one(VerticalScroll).scroll_up(animate=False)


def help_page(*, read_only: bool) -> Page:
    text = Text()
    for keys, meaning in KEYS:
        text.append(f"{keys:<17} ", "bold").append(f"{meaning}\n")
    if read_only:
        text.append("\nThis is for looking only: nothing can be changed here.")
    else:
        text.append("\nCapital letters change something. Each asks first.\n")
        for keys, meaning in DANGEROUS:
            text.append(f"{keys:<17} ", "bold").append(f"{meaning}\n")
    return Page(text)
