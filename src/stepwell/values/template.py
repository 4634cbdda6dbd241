"""Templates over the arguments of a task, such as `"{user}"` or `"order-{order.id}"`, which give a job its keys."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from string import Formatter
from typing import Any

from stepwell.errors import BadArgs, ConfigError
from stepwell.errors.text import quoted
from stepwell.values.instant import in_utc

# A longer key is cut, and ends in a digest of the whole.
LONGEST = 200
_DIGEST = 32
_formatter = Formatter()
_CONTROL = re.compile(r"[\x01-\x1f]")
# A time with an offset ends so.
_OFFSET = re.compile(r"[+-]\d\d:\d\d")
# What may follow the name of an argument: attributes and items.
_PATH = re.compile(r"(?:\.[^\W\d]\w*|\[[^\]]+\])*")


class _InUtc(Formatter):
    """Fills in times in UTC: equal ones are one key, whichever zone they are given in. A time that has a format is
    taken as it is: `{at:%Y-%m-%d}` is the day in the zone of the time."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(in_utc(value) if conversion and isinstance(value, datetime) else value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        return super().format_field(
            in_utc(value) if not format_spec and isinstance(value, datetime) else value, format_spec
        )


_in_utc = _InUtc()


def check_template(template: str, arguments: Sequence[str], what: str, *, constant: bool, control: bool = False) -> str:
    """Return the template. Raises `ConfigError` if no arguments could fill it in, if it names something that is no
    argument or, unless it may be `constant`, names none at all. `control`: the key may have control characters."""
    if not isinstance(template, str) or not template:
        raise ConfigError(f'{what} is {template!r}: give text over the arguments, such as "{{user}}"')
    try:
        parts = list(_formatter.parse(template))
    except ValueError as error:
        raise ConfigError(f"{what} is {template!r}, which is no template: {error}") from None
    text = "".join(literal for literal, _, _, _ in parts)
    if text:
        _check_text(text, template, what, control=control)
    known = ", ".join(arguments) or "none"
    names = False
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        names = True
        name = re.split(r"[.\[]", field, maxsplit=1)[0]
        if name not in arguments:
            raise ConfigError(f"{what} is {template!r}, which names {name!r}: the arguments are {known}")
        if _PATH.fullmatch(field, len(name)) is None:
            raise ConfigError(
                f'{what} is {template!r}, in which {field!r} is no value: write "{{order.id}}" for an attribute, and '
                '"{tags[0]}" for an item'
            )
        if conversion not in (None, "r", "s", "a"):
            raise ConfigError(f"{what} is {template!r}, which has '!{conversion}': there are !s, !r and !a")
        if spec and not _is_format(spec, of_text=conversion is not None):
            raise ConfigError(
                f"{what} is {template!r}, in which {spec!r} is no format of text, numbers or times: leave it out, or "
                'write one, such as "{number:05d}" or "{day:%Y-%m}"'
            )
    if not names and not constant:
        raise ConfigError(
            f"{what} is {template!r}, which names no argument, so that all jobs would share it: the arguments are "
            f"{known}"
        )
    return template


def _check_text(text: str, template: str, what: str, *, control: bool) -> None:
    """Refuse a template whose own text no key may have."""
    try:
        check_key(text, what)
    except BadArgs as error:
        raise ConfigError(str(error)) from None
    if not control and _CONTROL.search(text):
        raise ConfigError(f"{what} is {template!r}: a key must not have control characters")


def _is_format(spec: str, *, of_text: bool) -> bool:
    """Whether text, a number or a time takes this format. Which of them the argument is, only a job shows. A format
    that itself has fields could make any other."""
    if "{" in spec or "}" in spec:
        return False
    if "%" in spec and not of_text:
        return True  # strftime takes everything
    for example in ("",) if of_text else ("", 1, 1.0):
        try:
            format(example, spec)
        except (ValueError, MemoryError):
            continue
        return True
    return False


def fill(template: str, arguments: Mapping[str, Any], what: str) -> str:
    """Return the key that a template gives for these arguments. Raises `BadArgs` if it cannot be read from them, or if
    the key has control characters, which the keys of queues begin with."""
    return as_stored(filled(template, arguments, what), what)


def as_stored(key: str, what: str) -> str:
    """Return the key of a limit, rate or turn as it is stored: cut if it is long. Raises `BadArgs` if it cannot be."""
    key = short(key, what)
    if not key.isprintable() and _CONTROL.search(key):
        raise BadArgs(f"{what} is {quoted(key)}: a key must not have control characters")
    return key


def filled(template: str, arguments: Mapping[str, Any], what: str) -> str:
    """The same as `fill`, but a long key is not cut."""
    try:
        text = template.format_map(arguments)
        if ":" in text and _OFFSET.search(text):
            text = _in_utc.vformat(template, (), arguments)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadArgs(f"{what} {template!r} cannot be filled in: {type(error).__name__}: {error}") from None
    return check_key(text, what)


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
        raise BadArgs(f"{what} is {quoted(key)}: a key must be text, not empty and without NUL characters")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise BadArgs(
                f"{what} is {quoted(key)}, which holds half of a surrogate pair, so it is no Unicode text"
            ) from None
    return key
