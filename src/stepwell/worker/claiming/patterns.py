"""Names of queues, and patterns: a name that ends with * matches every queue with that prefix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_name

T = TypeVar("T")


def check_pattern(name: str) -> str:
    if "*" in check_name(name, "queue")[:-1]:
        raise ConfigError(
            f"queue is {name!r}: a * may only be the last character, to match every queue with that prefix"
        )
    return name


def is_pattern(name: str) -> bool:
    """Whether it matches by prefix."""
    return name.endswith("*")


def fits(queue: str, pattern: str) -> bool:
    return queue == pattern or (is_pattern(pattern) and queue.startswith(pattern[:-1]))


def overlap(one: str, other: str) -> bool:
    if is_pattern(one) and is_pattern(other):
        return one[:-1].startswith(other[:-1]) or other[:-1].startswith(one[:-1])
    return fits(other, one) if is_pattern(one) else fits(one, other)


class Patterns(Generic[T]):
    """Values by name and pattern. A queue gets the value of its own name, else of the longest pattern that matches."""

    def __init__(self, values: Mapping[str, T] | Iterable[tuple[str, T]]) -> None:
        given = dict(values)
        self._names = {name: value for name, value in given.items() if not is_pattern(name)}
        prefixes = [(name[:-1], value) for name, value in given.items() if is_pattern(name)]
        self._prefixes = sorted(prefixes, key=lambda prefix: -len(prefix[0]))

    def get(self, queue: str) -> T | None:
        value = self._names.get(queue)
        if value is not None:
            return value
        return next((value for prefix, value in self._prefixes if queue.startswith(prefix)), None)
