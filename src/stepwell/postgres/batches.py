"""Cut work into batches that one statement can carry: bounded in number, and in bytes.

A message to Postgres may not reach a gigabyte, and long before that it holds everything else up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

MOST_BYTES = 8 * 1024 * 1024


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in order, in batches of at most so many, and of little more than `MOST_BYTES` by their `size`."""
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
