"""Cut work into batches for one statement, with a limit in number and in bytes.

A message to Postgres must be smaller than a gigabyte, and a much smaller one already delays everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

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
