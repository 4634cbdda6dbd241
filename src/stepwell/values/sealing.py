"""Seal stored values with the codecs of an app, such as encryption and compression, and open them again.

A sealed value is still JSON: `{"$sealed": "zlib+fernet", "data": "..."}`, with the names of the codecs in the order in
which they were applied. A value that is not sealed is read as it is, so jobs of plain SQL work, and codecs can be added
to an app that has jobs.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from stepwell.errors import CodecError, ConfigError
from stepwell.errors.text import error_line_of

_MARK = "$sealed"
BEGINNING = '{"' + _MARK + '"'
"""How the JSON of a sealed value begins. Only hot paths ask for it, to save a call."""


@runtime_checkable
class ValueCodec(Protocol):
    """Transforms args, results, steps, events and signals on their way into the database and back. `name` is stored
    with each value, so it must stay the same."""

    name: str

    def encode(self, data: bytes) -> bytes | None:
        """Return what to store for this JSON; None: this codec leaves the value as it is."""
        ...

    def decode(self, data: bytes) -> bytes:
        """Return what `encode` was given."""
        ...


# The types that Python's own libraries return.
_BYTES = (bytes, bytearray, memoryview)


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    by: str = msgspec.field(name=_MARK)
    data: str


_decoder = msgspec.json.Decoder(_Sealed)


class Sealer:
    """The codecs of an app, in the order in which they encode."""

    def __init__(self, codecs: Iterable[ValueCodec] = ()) -> None:
        self._codecs = tuple(codecs)
        self._by_name: dict[str, ValueCodec] = {}
        for codec in self._codecs:
            name = getattr(codec, "name", None)
            if isinstance(codec, type) or not isinstance(codec, ValueCodec) or not isinstance(name, str):
                raise ConfigError(f"codecs has {codec!r}: give objects with name, encode(data) and decode(data)")
            if not name or "+" in name or name in self._by_name:
                raise ConfigError(f"codecs has one named {name!r}: names must differ, and have no '+'")
            self._by_name[name] = codec

    def seal(self, text: str) -> str:
        """Return JSON to store in place of this JSON. Raises `CodecError` if a codec fails."""
        if not self._codecs:
            return text
        data, names = text.encode(), list[str]()
        for codec in self._codecs:
            try:
                encoded = codec.encode(data)
                if encoded is not None and not isinstance(encoded, _BYTES):
                    raise _returned(encoded)
            except Exception as error:
                raise CodecError(f"codec {codec.name!r} could not encode a value: {error_line_of(error)}") from error
            if encoded is not None:
                data, names = encoded, [*names, codec.name]
        if not names:
            return text
        return f'{BEGINNING}:"{"+".join(names)}","data":"{base64.b64encode(data).decode()}"}}'

    def open(self, text: str) -> str:
        """Return the JSON that was sealed. Raises `CodecError` if this app lacks a codec, or its key."""
        if not text.startswith(BEGINNING):
            return text
        try:
            sealed = _decoder.decode(text)
        except msgspec.DecodeError:
            return text  # a value of the user's that begins alike
        return self._opened(sealed.by, sealed.data)

    def shown(self, value: Any) -> Any:
        """Return a value for people to read: a sealed one is opened, or described if it cannot be."""
        by = sealed_by(value)
        if by is None:
            return value
        try:
            return msgspec.json.decode(self._opened(by, value["data"]))
        except (CodecError, msgspec.DecodeError, RecursionError):
            return f"(sealed by {by})"

    def opened_text(self, value: Any) -> str | None:
        """Return the JSON that was sealed as this value; None: it is not sealed. Raises `CodecError` as `open` does."""
        by = sealed_by(value)
        return None if by is None else self._opened(by, value["data"])

    def shown_args(self, args: dict[str, Any]) -> dict[str, Any]:
        shown = self.shown(args)
        return cast("dict[str, Any]", shown) if isinstance(shown, dict) else {"": shown}

    def _opened(self, by: str, text: str) -> str:
        try:
            data = base64.b64decode(text, validate=True)
            for name in reversed(by.split("+")):
                codec = self._by_name.get(name)
                if codec is None:
                    raise CodecError(
                        f"a stored value is sealed by {by!r}, and this app has no codec {name!r}: give it to "
                        "App(codecs=[...])"
                    )
                data = codec.decode(data)
                if not isinstance(data, _BYTES):
                    raise CodecError(f"codec {name!r} could not decode a value: {_returned(data)}")
            return bytes(data).decode()
        except CodecError:
            raise
        except Exception as error:
            raise CodecError(
                f"a stored value that is sealed by {by!r} could not be opened: {error_line_of(error)}: does this app "
                "lack a key?"
            ) from error


def _returned(given: object) -> TypeError:
    return TypeError(f"it returned {type(given).__name__}, and must return bytes")


def sealed_by(value: Any) -> str | None:
    """The names of the codecs that have sealed a value, as they are stored; None: it is not sealed."""
    if not isinstance(value, dict) or _MARK not in value:
        return None
    found = cast("Mapping[str, Any]", value)
    by, data = found[_MARK], found.get("data")
    return by if len(found) == 2 and isinstance(by, str) and isinstance(data, str) else None


PLAIN = Sealer()
"""Seals nothing, and opens nothing."""
