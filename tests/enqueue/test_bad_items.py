"""Of many items the error names the one that is bad."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from stepwell import App, BadArgs, Context, JobFailed, Retry, SyncContext, TooLarge, Worker

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"n": "three"}, r"^item 2: task 'note': argument 'n'"),
        ({}, r"^item 2: task 'note' takes \(n: int\): it needs 'n'$"),
        (3, r"^item 2: give a dict of arguments or note\.call\(\.\.\.\), not int$"),
        ("other", r"^item 2: a call of 'other' among those of 'note': use app\.enqueue_many$"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_the_error_names_the_index_of_the_bad_item(bad: Any, said: str, is_async: bool) -> None:
    app = App()  # bad args are so without a database

    @app.task
    async def note(n: int) -> None: ...

    @app.task
    async def other() -> None: ...

    items: list[Any] = [{"n": 0}, note.call(1), other.call() if bad == "other" else bad, {"n": "four"}]
    with pytest.raises(BadArgs, match=said):
        await (note.aenqueue_many(items) if is_async else asyncio.to_thread(note.enqueue_many, items))


async def test_what_is_no_call_is_named_by_its_index() -> None:
    app = App()

    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(BadArgs, match=r"^item 1: app\.enqueue_many takes calls"):
        await app.aenqueue_many([note.call(0), {"n": 1}])  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadArgs, match=r"^item 1: app\.enqueue_many takes calls"):
        await asyncio.to_thread(app.enqueue_many, [note.call(0), 1])  # pyright: ignore[reportArgumentType]


async def test_an_item_that_the_database_finds_too_large_is_named_in_whichever_chunk_it_is(dsn: str) -> None:
    async with App(dsn, max_args_size=5 * MIB) as app:

        @app.task
        async def note(text: str) -> None: ...

        items = [{"text": ""}] * 2500 + [{"text": "é" * MIB}, {"text": ""}]
        puts: list[Callable[[], Any]] = [
            lambda: note.aenqueue_many(items),
            lambda: asyncio.to_thread(note.enqueue_many, items),
            lambda: app.aenqueue_many([note.call(**item) for item in items]),
        ]
        for put in puts:
            with pytest.raises(TooLarge, match=r"^item 2500: args of 2097163 bytes"):
                await put()
        with pytest.raises(TooLarge, match=r"^item 1: metadata of"):
            await note.aenqueue_many([{"text": ""}, note.using(metadata={"a": "x" * 70_000}).call("")])
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            with pytest.raises(TooLarge, match=r"^item 2500: "):
                await note.using(connection=connection).aenqueue_many(items)


async def test_spawn_many_names_the_index_of_the_bad_item(app: App) -> None:
    once = Retry(max_attempts=1)

    @app.task
    async def note(n: int) -> None: ...

    @app.task(retry=once)
    async def parent(ctx: Context) -> None:
        ctx.spawn_many(note, [{"n": 0}, {"n": "one"}])

    @app.task(retry=once)
    def sync_parent(ctx: SyncContext) -> None:
        ctx.spawn_many(note, [{"n": 0}, 1])

    async with Worker(app):
        with pytest.raises(JobFailed, match=r"BadArgs: item 1: task 'note': argument 'n'"):
            await (await parent.aenqueue()).aresult("10s")
        with pytest.raises(JobFailed, match=r"BadArgs: item 1: give a dict of arguments"):
            await (await sync_parent.aenqueue()).aresult("10s")
