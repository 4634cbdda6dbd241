"""A context shows its handler the documented names, and nothing that only the worker may touch."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import App, Context, SyncContext, Worker

EVERY = {
    "attempt", "cancelled", "connection", "deadline", "epoch", "id", "logger", "metadata", "progress", "queue",
    "resource", "scheduled_for", "session", "sync_connection", "sync_session", "task", "wait_cancelled",
}  # fmt: skip
DURABLE = {
    "first", "gather", "map", "now", "patched", "random", "receive", "sleep", "sleep_until", "spawn", "spawn_many",
    "step", "transaction", "uuid", "wait_for",
}  # fmt: skip


def _names(ctx: Any) -> list[str]:
    return [type(ctx).__name__, *(name for name in dir(ctx) if not name.startswith("_"))]


@pytest.mark.parametrize(
    ("kind", "names"), [("Context", EVERY | DURABLE), ("SyncContext", EVERY | DURABLE), ("PlainContext", EVERY)]
)
async def test_a_context_has_the_documented_names_and_no_others(app: App, kind: str, names: set[str]) -> None:
    @app.task(name="Context")
    async def durable(ctx: Context) -> list[str]:
        return _names(ctx)

    @app.task(name="SyncContext")
    def sync(ctx: SyncContext) -> list[str]:
        return _names(ctx)

    @app.task(name="PlainContext")
    def plain(ctx: Context) -> list[str]:
        return _names(ctx)

    task = {"Context": durable, "SyncContext": sync, "PlainContext": plain}[kind]
    async with Worker(app):
        found = await (await task.aenqueue()).aresult(timeout="10s")
    assert found == [kind, *sorted(names)]
