"""Calls in threads of their own."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest

from stepwell import App, ConfigError

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


def test_an_async_call_on_another_event_loop_says_that_it_needs_asyncio(dsn: str) -> None:
    app = App(dsn)

    @app.task
    async def note() -> None: ...

    for call in (note.aenqueue(), app.aemit("paid"), app.job(uuid4()).aresult(), app.__aenter__()):
        # As trio would begin it: no event loop of asyncio runs in this thread.
        with pytest.raises(ConfigError, match="needs a running event loop of asyncio"):
            call.send(None)
    app.close()
