"""What is printed: text that came with a job is shown and never obeyed; a reader may go away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import termios

import pytest
from cli.commands import Jobs, Run, Start

from stepwell.cli.output import clean

HOSTILE = "[bold]x[/] [link=http://evil]y\x1b[31m\x07\u202e\x9b"


def test_what_a_terminal_might_obey_is_written_out() -> None:
    assert clean("ä [bold] 字") == "ä [bold] 字"
    assert clean("a\x1b[31m\x07b\u202ec\x9bd\ud800") == "a\\x1b[31m\\x07b\\u202ec\\x9bd\\ud800"
    assert clean("a\nb\r\n\tc") == "a\\nb\\r\\n\\tc"
    assert clean("a\nb\r\n\tc", lines=True) == "a\nb\\r\n    c"


def test_hostile_names_and_messages_are_shown_as_they_are(run: Run, jobs: Jobs) -> None:
    job = jobs.failed(HOSTILE, task=HOSTILE, args="{}", metadata='{"[red]": "[/]"}')
    jobs.connection.execute("select stepwell.pause(%s)", (HOSTILE,))
    for argv in (("jobs", "list"), ("jobs", "show", job), ("queues",)):
        ran = run(*argv)
        assert (ran.code, ran.err) == (0, "")
        assert "[bold]x[/] [link=http://evil]y\\x1b[31m\\x07\\u202e\\x9b" in ran.out
        assert all(char.isprintable() or char == "\n" for char in ran.out)
    assert run("jobs", "list", "--json").json[0]["task"] == HOSTILE


def test_a_message_of_many_lines_stays_in_its_row(run: Run, jobs: Jobs) -> None:
    jobs.failed("first\nsecond\r\nthird")
    assert len(run("jobs", "list").out.splitlines()) == 2


def test_very_long_values_are_cut_in_tables_and_whole_elsewhere(run: Run, jobs: Jobs) -> None:
    job = jobs.failed("long " * 2000, args='{"x": "' + "y" * 5000 + '"}')
    assert max(len(line) for line in run("jobs", "list").out.splitlines()) < 400
    assert "y" * 5000 in run("jobs", "show", job).out


def test_json_is_read_by_every_program_whatever_the_values_are(run: Run, jobs: Jobs) -> None:
    strings = '{"c": "\\ud800\\ud83d\\ude00ä\\\\ud800", "\\udfff": 1}'
    args = f'{{"a": 1e400, "b": [-1e400, {strings}], "n": 12345678901234567890123}}'
    job = jobs.running(args=args)
    shown = {"a": "inf", "b": ["-inf", {"c": "\ufffd\U0001f600ä\\ud800", "\ufffd": 1}], "n": 12345678901234567890123}
    for argv in (("jobs", "list"), ("jobs", "show", job), ("top", "--once")):
        ran = run(*argv, "--json")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.isascii()

        def refuse(constant: str) -> None:
            raise AssertionError(constant)

        found = json.loads(ran.out, parse_constant=refuse)
        [read] = found["running"] if argv[0] == "top" else found if argv[1] == "list" else [found]
        assert read["args"] == shown


@pytest.mark.parametrize("depth", [300, 900, 960, 980, 1100])
def test_json_is_printed_whole_or_cut_where_it_is_too_deep(run: Run, jobs: Jobs, depth: int) -> None:
    jobs.ready(args='{"a": ' * depth + "1" + "}" * depth)
    other = jobs.ready()
    ran = run("jobs", "list", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert other in ran.out
    assert ran.out.count('"a"') == depth or "too deep" in ran.out


@pytest.mark.slow
def test_a_narrow_terminal_cuts_text_and_never_ids(start: Start, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = jobs.failed("a rather long message that does not fit", task="a_task_with_quite_a_long_name")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    for variable in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    process = start("jobs", "list", stdout=theirs, fresh=True)
    os.close(theirs)
    printed = b""
    try:
        while chunk := os.read(ours, 4096):
            printed += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    row = printed.decode().splitlines()[1]
    assert row.startswith(job)
    assert "\x1b[31mfailed" in row
    assert "…" in row


@pytest.mark.parametrize("argv", [("jobs", "list"), ("jobs", "list", "--json"), ("migrate", "--sql")])
def test_a_reader_that_goes_away_is_no_reason_for_a_traceback(start: Start, jobs: Jobs, argv: tuple[str, ...]) -> None:
    jobs.ready()
    process = start(*argv)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) != 0
