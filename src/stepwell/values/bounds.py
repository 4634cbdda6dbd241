"""Checks of what people give: names, labels, flags, whole numbers within limits, and words from a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted

Choice = TypeVar("Choice", bound=str)


def check_whole(number: int, what: str, low: int, high: int | None = None) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= (high or 2**62):
        bounds = f"of at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(f"{what} is {quoted(number)}: it must be a whole number {bounds}")
    return number


def check_choice(choice: Choice, what: str, choices: Sequence[Choice]) -> Choice:
    if choice not in choices:
        raise ConfigError(f"{what} is {quoted(choice)}: it must be one of {', '.join(choices)}")
    return choice


def check_flag(flag: bool, what: str) -> bool:
    if not isinstance(flag, bool):
        raise ConfigError(f"{what} is {quoted(flag)}: it must be True or False")
    return flag


def check_label(label: str | None, what: str, most: int) -> str | None:
    """Check text that is only shown to people."""
    if label is not None and (not isinstance(label, str) or not 1 <= len(label) <= most or not label.isprintable()):
        raise ConfigError(f"{what} is {quoted(label)}: it must be text of 1 to {most:,} printable characters")
    return label


def check_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError(f"{what} is {quoted(name)}: it must be text of 1 to 200 printable characters")
    return name
