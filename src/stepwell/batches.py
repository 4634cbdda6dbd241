"""Cut work into batches that one statement can carry: bounded in number, and in bytes.

A message to Postgres may not reach a gigabyte, and long before that it holds everything else up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

MOST_BYTES = 8 * 1024 * 1024


def batches(items: list[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in order, in batches of at most so many, and of little more than `MOST_BYTES` by their `size`."""
    start = weight = 0
    for end, item in enumerate(items):
        if end > start and (end - start >= most or weight + size(item) > MOST_BYTES):
            yield items[start:end]
            start, weight = end, 0
        weight += size(item)
    if start < len(items):
        yield items[start:]
