"""Calls in threads of their own."""

from __future__ import annotations

import subprocess
import sys

_LEFT_AT_THE_END = """
from stepwell.postgres.threads import in_thread

class Left:
    def __del__(self, in_thread=in_thread, print=print):
        try:
            in_thread(lambda: print("called")).send(None)
        except StopIteration:
            pass

left = Left()
"""


def test_a_call_that_comes_as_the_interpreter_ends_does_not_wait_for_a_thread() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _LEFT_AT_THE_END], capture_output=True, text=True, timeout=30, check=True
    )
    assert (ran.stdout, ran.stderr) == ("called\n", "")
