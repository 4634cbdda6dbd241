"""Bounds of options: whole numbers within limits, and words from a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from stepwell.errors import ConfigError

Choice = TypeVar("Choice", bound=str)


def check_whole(number: int, what: str, low: int, high: int | None = None) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= (high or 2**62):
        bounds = f"of at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(f"{what} is {number!r}: it must be a whole number {bounds}")
    return number


def check_choice(choice: Choice, what: str, choices: Sequence[Choice]) -> Choice:
    if choice not in choices:
        raise ConfigError(f"{what} is {choice!r}: it must be one of {', '.join(choices)}")
    return choice
