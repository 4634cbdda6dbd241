"""`stepwell sizes`."""

from __future__ import annotations

from cli.commands import Run


def test_limits_are_listed(run: Run) -> None:
    listed = {limit["name"]: limit["bytes"] for limit in run("sizes", "--json").json}
    assert listed == {
        "args": 1024**2,
        "event": 1024**2,
        "job": 128 * 1024**2,
        "metadata": 65536,
        "progress": 65536,
        "result": 1024**2,
        "signal": 1024**2,
        "step": 1024**2,
    }
    assert run("sizes").out.splitlines()[1].split() == ["args", "1", "MB", "1048576"]


def test_a_limit_is_changed(run: Run) -> None:
    assert run("sizes", "set", "args", "5MB").out == "the limit of args is 5 MB; it was 1 MB\n"
    assert run("sizes", "set", "args", "100kB").out == "the limit of args is 100 kB; it was 5 MB\n"


def test_a_limit_that_is_wrong_is_refused(run: Run) -> None:
    wrong = run("sizes", "set", "arg", "5MB")
    assert (wrong.code, wrong.err) == (
        1,
        "stepwell: there is no limit named 'arg': give one of args, event, job, metadata, progress, result, signal, "
        "step\n",
    )
    assert "between 64 kB and 512 MB" in run("sizes", "set", "args", "5kB").err
    assert run("sizes", "set", "args", "much").code == 2
