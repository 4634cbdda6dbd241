"""Templates over the arguments of a task, such as `"{user}"` or `"order-{order.id}"`, which give a job its keys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from stepwell.errors import BadArgs, ConfigError

# A longer key is cut, and ends in a digest of the whole.
LONGEST = 200
_DIGEST = 32
_formatter = Formatter()


def check_template(template: str, arguments: Sequence[str], what: str, *, constant: bool) -> str:
    """Return the template. Raises `ConfigError` if it names something that is no argument or, unless it may be
    `constant`, names none at all."""
    if not isinstance(template, str) or not template:
        raise ConfigError(f'{what} is {template!r}: give text over the arguments, such as "{{user}}"')
    try:
        fields = [field for _, field, _, _ in _formatter.parse(template) if field is not None]
    except ValueError as error:
        raise ConfigError(f"{what} is {template!r}, which is no template: {error}") from None
    known = ", ".join(arguments) or "none"
    for field in fields:
        name = field.partition(".")[0].partition("[")[0]
        if name not in arguments:
            raise ConfigError(f"{what} is {template!r}, which names {name!r}: the arguments are {known}")
    if not fields and not constant:
        raise ConfigError(
            f"{what} is {template!r}, which names no argument, so that all jobs would share it: the arguments are "
            f"{known}"
        )
    return template


def fill(template: str, arguments: Mapping[str, Any], what: str) -> str:
    """Return the key that a template gives for these arguments. Raises `BadArgs` if it cannot be read from them."""
    return short(filled(template, arguments, what), what)


def filled(template: str, arguments: Mapping[str, Any], what: str) -> str:
    """The same as `fill`, but a long key is not cut."""
    try:
        return check_key(template.format_map(arguments), what)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadArgs(f"{what} {template!r} cannot be filled in: {type(error).__name__}: {error}") from None


def short(key: str, what: str) -> str:
    """Return a key, cut if it is long. Raises `BadArgs` if it is empty or cannot be stored."""
    check_key(key, what)
    if len(key) <= LONGEST:
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{key[: LONGEST - _DIGEST - 1]}~{digest}"


def check_key(key: str, what: str) -> str:
    """Return the key. Raises `BadArgs` if it is empty or cannot be stored."""
    if not key or "\0" in key:
        raise BadArgs(f"{what} is {key!r}: a key must be text, not empty and without NUL characters")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise BadArgs(
                f"{what} is {key!r}, which holds half of a surrogate pair, so it is no Unicode text"
            ) from None
    return key
