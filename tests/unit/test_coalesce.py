"""Side by side, in batches: each gets its own answer, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stepwell.coalesce import Coalescer


def whole(items: list[int]) -> Iterator[list[int]]:
    yield items


async def test_those_who_wait_for_the_next_batch_are_told_when_nobody_sends_any_more() -> None:
    asked = asyncio.Event()

    class Ends(BaseException):
        pass

    async def end(items: list[int]) -> list[int]:
        asked.set()
        await going.wait()
        raise Ends

    going = asyncio.Event()
    coalescer = Coalescer(end, lambda _: True, whole)
    first = coalescer.submit(0)
    await asked.wait()
    second = coalescer.submit(1)
    going.set()
    for future in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await future
    sender = coalescer._sender  # pyright: ignore[reportPrivateUsage]
    assert sender is not None
    with pytest.raises(Ends):
        await sender
