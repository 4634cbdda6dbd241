"""How a long command shows how far it is."""

from __future__ import annotations

import io
import sys

import pytest

from stepwell.cli.progress import progress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_a_line_is_written_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with progress("retrying", 400, clock=clock) as shown:
        for _ in range(4):
            shown.advance(100)
            clock.now += 2.6
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "retrying: 300 of 400, 75%\n"


def test_without_a_total_it_says_how_much_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with progress("deleting", clock=clock) as shown:
        clock.now = 6
        shown.update(0)
        clock.now = 12
        shown.update(12_345)
        clock.now = 18
        shown.now("dropping [bold]\x1b[31m")
    assert capsys.readouterr().err.splitlines() == [
        "deleting ...",
        "deleting: 12,345 so far",
        "dropping [bold]\\x1b[31m: 12,345 so far",
    ]


def test_a_quick_command_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("retrying", 2, clock=Clock()) as shown:
        shown.advance(2)
    assert terminal.getvalue() == ""


def test_a_terminal_has_a_bar_that_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("retry [red]jobs[/]", 2000, clock=clock) as shown:
        clock.now = 1
        shown.advance(1500)
    said = terminal.getvalue()
    assert "retry [red]jobs[/]" in said
    assert "1,500 of 2,000" in said
    assert said.endswith("\x1b[2K")
