"""Keep Django's rules for connections in a worker, whatever it runs: Django tasks, tasks of the app, or their steps.

A plain function runs in a thread of the worker, whose connections are kept between runs as those of a thread of a web
server are between requests. An `async def` gets a thread of its own for the ORM, as an ASGI request does, and its
connections are closed at its end.
"""
# pyright: basic

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from stepwell.plugins import Plugin, Run
from stepwell.plugins.thread import around_thread


class ConnectionRules(Plugin):
    """The plugin that the app of a site has before all others."""

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:  # noqa: ARG002
        around_thread.set(_usable_connections)
        async with ThreadSensitiveContext() as context:
            try:
                await call()
            finally:
                # Only a run that called the ORM in async code has a thread. It ends with the context.
                if context in SyncToAsync.context_to_thread_executor:
                    await sync_to_async(connections.close_all)()


@contextmanager
def _usable_connections() -> Generator[None]:
    """Close connections of this thread that are broken, or older than CONN_MAX_AGE, before and after a call."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
