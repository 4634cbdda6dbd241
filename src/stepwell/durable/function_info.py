"""What there is to know of the function of a step: its name, how it is called, what it returns, what it was given."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType
from typing import Any, cast
from zlib import crc32

import msgspec

from stepwell.errors import BadValue, ConfigError, StepwellError
from stepwell.values.json import encode_other, new_decoder

_SCALARS = frozenset((type(None), bool, int, str, float))
# The same for equal arguments, whatever order a set of them has in this process.
_fingerprints = msgspec.json.Encoder(enc_hook=encode_other, order="deterministic")


class Look(msgspec.Struct, frozen=True, gc=False):
    """What there is to know of a step's function."""

    name: str
    is_async: bool
    returns: Any
    """The return annotation; Any: it has none, or one that cannot be read."""

    def is_as_saved(self, value: Any) -> bool:
        """Whether a value is what would be read again, by its type alone. If not, that must be tried."""
        kind = cast("type[Any]", type(value))
        return kind in _SCALARS and (self.returns is kind or self.returns is Any)


def look_at(fn: Callable[..., Any]) -> Look:
    """Look at a step's function. Raises if it cannot be one."""
    return _looked_at(fn) if _may_be_kept(fn) else _look_at(fn)


def _may_be_kept(fn: object) -> bool:
    """Whether nothing hangs on a function that should be let go with it: no arguments, no object, no closure."""
    return type(fn) is FunctionType and fn.__closure__ is None


def _look_at(fn: Callable[..., Any]) -> Look:
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
        raise ConfigError(f"a step takes a function and its arguments, not {fn!r}")
    name = getattr(function, "__name__", type(function).__name__)
    return Look(name, inspect.iscoroutinefunction(fn), _returns(function))


_looked_at = lru_cache(maxsize=4096)(_look_at)


def name_of(fn: Callable[..., Any]) -> str:
    """What a step is called by default: as its function."""
    return look_at(fn).name


def fingerprint(args: tuple[Any, ...]) -> int | None:
    """A checksum of a step's arguments; None: they have none."""
    if not args:
        return None
    try:
        found = crc32(_fingerprints.encode(args))
    except Exception:
        return None
    return found - (1 << 32) if found >= 1 << 31 else found


def decode_value(fn: Callable[..., Any], key: str, text: str) -> Any:
    """The saved value of a step, as the return annotation of its function says."""
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
    """The same, before it is saved: raises `BadValue` if it could not be read again."""
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
    return _kept_decoder(function) if _may_be_kept(function) else _decoder(function)


def _decoder(function: Callable[..., Any]) -> msgspec.json.Decoder[Any]:
    try:
        return new_decoder(_returns(function))
    except TypeError as error:
        raise ConfigError(f"what {name_of(function)!r} returns cannot be stored as JSON: {error}") from None


_kept_decoder = lru_cache(maxsize=4096)(_decoder)


def takes_context(fn: Callable[..., Any], kind: type[Any]) -> bool:
    """Whether the first parameter of a function is annotated as a context."""
    try:
        hints = typing.get_type_hints(fn)
        first = next(iter(inspect.signature(fn).parameters), None)
    except (NameError, TypeError, ValueError, AttributeError):
        return False
    return first is not None and hints.get(first) is kind


def can_undo(fn: object) -> bool:
    """Whether it takes the value of a step, or nothing."""
    if not callable(fn):
        return False
    try:
        inspect.signature(fn).bind()
    except TypeError:
        return takes_one(fn)
    except ValueError:
        return True  # a builtin that does not tell
    return True


def takes_one(fn: Callable[..., Any]) -> bool:
    """Whether an undo function is to be given the value of its step."""
    try:
        inspect.signature(fn).bind(None)
    except (TypeError, ValueError):
        return False
    return True
