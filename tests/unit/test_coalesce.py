"""Side by side, in batches: each gets its own answer, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell.postgres.coalesce import Coalescer, batches


def whole(items: list[int]) -> Iterator[list[int]]:
    yield items


async def cancel(coalescer: Coalescer[int, int]) -> None:
    sender = coalescer._sender  # pyright: ignore[reportPrivateUsage]
    assert sender is not None
    sender.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sender


async def test_those_who_wait_for_the_next_batch_are_told_when_nobody_sends_any_more() -> None:
    asked = asyncio.Event()

    async def never(_: list[int]) -> list[int]:
        asked.set()
        return await asyncio.Future[Any]()

    coalescer = Coalescer(never, lambda _: True, whole)
    first = coalescer.submit(0)
    await asked.wait()
    second = coalescer.submit(1)
    await cancel(coalescer)
    assert first.cancelled()
    assert second.cancelled()


async def test_those_who_are_sent_again_one_by_one_are_told_too() -> None:
    alone = asyncio.Event()

    async def fail_together(items: list[int]) -> list[int]:
        if len(items) > 1:
            raise ValueError
        if items == [1]:
            alone.set()
            await asyncio.Future[Any]()
        return items

    coalescer = Coalescer(fail_together, lambda _: True, whole)
    futures = [coalescer.submit(n) for n in range(3)]
    await alone.wait()
    await cancel(coalescer)
    assert futures[0].result() == 0
    assert futures[1].cancelled()
    assert futures[2].cancelled()


async def test_what_is_no_error_but_ends_a_run_reaches_each_as_it_is() -> None:
    class Ends(BaseException):
        pass

    async def end(_: list[int]) -> list[int]:
        raise Ends

    coalescer = Coalescer(end, lambda _: True, whole)
    for future in [coalescer.submit(n) for n in range(2)]:
        with pytest.raises(Ends):
            await future


def test_a_batch_is_cut_before_the_items_behind_it_are_made() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for n in range(6):
            made.append(n)
            yield n

    assert next(batches(items(), 2, lambda _: 1)) == [0, 1]
    assert made == [0, 1, 2]
