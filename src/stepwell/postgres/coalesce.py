"""Gather concurrent requests into batches, without a timer, and cut batches by number and bytes.

While one batch is under way, the next one gathers, and it is sent the moment the first returns. A single request never
waits, and under load the batches grow by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Coalescer(Generic[Item, Answer]):
    """Calls `send` with batches of items; each submitter gets its own answer, or its own error. `send` may also answer
    a single item with an error. A coalescer belongs to the event loop in which it is made.

    `batches` cuts the waiting items into batches. `nothing_written` tells whether an error rolled back the whole batch:
    then each item is sent again, alone.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer | BaseException]]],
        nothing_written: Callable[[Exception], bool],
        batches: Callable[[list[Item]], Iterator[list[Item]]],
    ) -> None:
        self._send = send
        self._nothing_written = nothing_written
        self._batches = batches
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._sender: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._gathered.append((item, future))
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send_all())
        return future

    async def _send_all(self) -> None:
        # Items whose submitter was cancelled before the batch was sent are dropped.
        while gathered := [one for one in self._gathered if not one[1].done()]:
            items = next(self._batches([item for item, _ in gathered]))
            futures, self._gathered = [future for _, future in gathered[: len(items)]], gathered[len(items) :]
            await self._send_batch(items, futures)
        self._gathered = []

    async def _send_batch(self, items: list[Item], futures: list[asyncio.Future[Answer]]) -> None:
        try:
            answers = await self._send(items)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            # The sender ends, so the submitters that wait for the next batch are cancelled too.
            gathered, self._gathered = self._gathered, []
            for future in (*futures, *(future for _, future in gathered)):
                future.cancel()
            raise
        except BaseException as error:
            if len(items) == 1 or not isinstance(error, Exception) or not self._nothing_written(error):
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
                return
            try:
                # One bad item must not fail the others.
                for item, future in zip(items, futures, strict=True):
                    await self._send_batch([item], [future])
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
            return
        for future, answer in zip(futures, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class Overdue(Exception):
    """The answer did not come in time."""


async def answer_within(answer: asyncio.Future[Answer], seconds: float) -> Answer:
    """Wait for the answer to a submitted item. Raises `Overdue` after so many seconds. `asyncio.timeout` does the same,
    but takes several times as long, and producers call this for every job."""
    timer = answer.get_loop().call_later(seconds, _give_up, answer)
    try:
        return await answer
    finally:
        timer.cancel()


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(Overdue())


# A message to Postgres must be smaller than a gigabyte, and a much smaller one already delays everything else.
MOST_BYTES = 8 * 1024 * 1024


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items in order, in batches of at most `most` items and about `MOST_BYTES` by their `size`."""
    batch: list[Item] = []
    weight = 0
    for item in items:
        own = size(item)
        if batch and (len(batch) >= most or weight + own > MOST_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append(item)
        weight += own
    if batch:
        yield batch
