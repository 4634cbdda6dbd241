"""Facts about the function of a step: its name, how it is called, how its value and arguments are stored."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType
from typing import Any
from zlib import crc32

import msgspec

from stepwell.errors import BadValue, ConfigError, StepwellError
from stepwell.values.json import encode_other, new_decoder

_SCALARS = frozenset((type(None), bool, int, str, float))
# Equal arguments give equal bytes, whatever the order of a set in this process.
_fingerprints = msgspec.json.Encoder(enc_hook=encode_other, order="deterministic")


class FunctionInfo(msgspec.Struct, frozen=True, gc=False):
    """Facts about a step's function."""

    name: str
    is_async: bool
    returns: Any
    """The return annotation, or Any if there is none that can be read."""

    def is_as_saved(self, value: Any) -> bool:
        """Whether a value's type alone shows that a replay reads an equal value. If not, `check_value` must try."""
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        return kind in _SCALARS and (self.returns is kind or self.returns is Any)


def function_info(fn: Callable[..., Any]) -> FunctionInfo:
    return _cached_info(fn) if _may_be_cached(fn) else _info(fn)


def _may_be_cached(fn: object) -> bool:
    """Whether a cache of this function keeps nothing else alive: no bound arguments, no object, no closure."""
    return type(fn) is FunctionType and fn.__closure__ is None


def _info(fn: Callable[..., Any]) -> FunctionInfo:
    if hasattr(fn, "aenqueue"):
        name = getattr(fn, "name", "it")
        raise ConfigError(
            f"{name!r} is a task: ctx.spawn({name}, ...) runs it as a job of its own, ctx.step({name}.fn, ...) as a "
            "step"
        )
    function: Any = _function(fn)
    if inspect.iscoroutine(fn):
        fn.close()
        raise ConfigError(f"a step takes a function and its arguments: ctx.step({fn.__name__}, ...), not a call of it")
    if not callable(function):
        raise ConfigError(
            f"a step takes a function and its arguments, ctx.step(fn, ...), not the value {fn!r}: do not call it here"
        )
    name = getattr(function, "__name__", type(function).__name__)
    return FunctionInfo(name, inspect.iscoroutinefunction(fn), _returns(function))


_cached_info = lru_cache(maxsize=4096)(_info)


def name_of(fn: Callable[..., Any]) -> str:
    return function_info(fn).name


def fingerprint(args: tuple[Any, ...]) -> int | None:
    """A checksum of a step's arguments, or None if there are none or they cannot be encoded."""
    if not args:
        return None
    try:
        found = crc32(_fingerprints.encode(args))
    except Exception:
        return None
    return found - (1 << 32) if found >= 1 << 31 else found


def decode_value(fn: Callable[..., Any], key: str, text: str) -> Any:
    """The saved value of a step, typed by the return annotation of its function."""
    try:
        return _decoder_for(fn).decode(text)
    except RecursionError:
        raise BadValue(f"the saved value of step {key!r} is nested too deep") from None
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the saved value of step {key!r} does not fit the return annotation of its function: {error}; give the "
            "step another key= if it is another step now"
        ) from None


def check_value(fn: Callable[..., Any], key: str, text: str) -> Any:
    """The same before the value is saved. Raises `BadValue` if a replay could not read it."""
    try:
        return _decoder_for(fn).decode(text)
    except msgspec.DecodeError as error:
        raise BadValue(
            f"step {key!r} returned a value that does not fit the return annotation of its function: {error}"
        ) from None
    except RecursionError:
        raise BadValue(f"step {key!r} returned a value that is nested too deep") from None


def _returns(fn: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(fn, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return Any


def _function(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return getattr(fn, "__func__", fn)


def _decoder_for(fn: Callable[..., Any]) -> msgspec.json.Decoder[Any]:
    function = _function(fn)
    return _cached_decoder(function) if _may_be_cached(function) else _decoder(function)


def _decoder(function: Callable[..., Any]) -> msgspec.json.Decoder[Any]:
    try:
        return new_decoder(_returns(function))
    except TypeError as error:
        raise ConfigError(f"the return value of {name_of(function)!r} cannot be stored as JSON: {error}") from None


_cached_decoder = lru_cache(maxsize=4096)(_decoder)


def takes_context(fn: Callable[..., Any], kind: type[Any]) -> bool:
    try:
        hints = typing.get_type_hints(fn)
        first = next(iter(inspect.signature(fn).parameters), None)
    except (NameError, TypeError, ValueError, AttributeError):
        return False
    return first is not None and hints.get(first) is kind


def can_undo(fn: object) -> bool:
    """Whether a function can be an `undo`: it takes the value of a step, or nothing."""
    if not callable(fn):
        return False
    try:
        inspect.signature(fn).bind()
    except TypeError:
        return takes_one(fn)
    except ValueError:
        return True  # a builtin without a signature
    return True


def takes_one(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn).bind(None)
    except (TypeError, ValueError):
        return False
    return True
