"""Encode args and results as JSON and back, by the task's own annotations.

A signature becomes one msgspec struct, so decoding checks names and types in one pass. Args are decoded once before
they are sent, so that bad args raise in the caller and not in a worker.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import BadArgs, ConfigError, MisfitArgs
from stepwell.jobs.annotations import context_by_text, name_the_argument, without_restart
from stepwell.resources.injected import Injected
from stepwell.values.json import (
    NUL,
    encode_value,
    encoder,
    holds_nan,
    may_hold_nan,
    new_decoder,
    say_wrong_names,
    shape_of,
    wrong_names,
)
from stepwell.values.sealing import BEGINNING, PLAIN

_CONTEXTS = (Context, SyncContext)
# Keyword arguments of `Enqueuer.using`, which callers also try on `enqueue`.
OPTIONS_OF_USING = {
    "queue", "priority", "delay", "run_at", "metadata", "max_attempts", "retry", "timeout", "keep", "keep_failed",
    "unique", "connection",
}  # fmt: skip


class Codec:
    """Encodes and decodes the arguments and the result of one function."""

    def __init__(self, name: str, fn: Callable[..., Any], *, result: Any = None) -> None:
        self._name = name
        self._result = result
        self._fn = fn
        try:
            self._signature = inspect.signature(fn)
        except ValueError:
            raise ConfigError(f"task {name!r}: {fn!r} has no signature: write a function around it") from None
        parameters = list(self._signature.parameters.values())
        # A worker fills in the others: they are no arguments of a job.
        self._parameters = [parameter for parameter in parameters if parameter.default is not Injected]
        self._injected = [parameter.name for parameter in parameters if parameter.default is Injected]
        self.injected: dict[str, Any] = {}
        """The types of the resources that the function takes, by parameter."""
        self.context_parameter: str | None = None
        self.wants_sync_context = False
        self.sealer = PLAIN
        """Seals what is stored, and opens it again."""
        self.ready = False
        """Whether the annotations were read. If not, they are read at the first use."""
        for parameter in self._parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ConfigError(
                    f"task {name!r}: {parameter} cannot be stored by name: declare each argument of the task"
                )
        # Annotations may name classes that are defined further down in the module: then they are read at the first use.
        try:
            self._build()
        except NameError:
            self.context_parameter = context_by_text(self._parameters)
            self._take_context()

    def encode_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int) -> str:
        """Encode the arguments as a JSON object. Raises `BadArgs`, which names the argument that does not fit."""
        self.prepare()
        return self._encode(self._bind(args, kwargs), most)[0]

    def encode_named_args(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int
    ) -> tuple[str, dict[str, Any]]:
        """Encode the arguments, and return them by name as well, as `named_args` would decode them."""
        self.prepare()
        encoded, values = self._encode(self._bind(args, kwargs), most)
        return encoded, self._named(values)

    def _encode(self, named: Mapping[str, Any], most: int) -> tuple[str, Any]:
        """Return the text to store, and the values that a worker will decode from it."""
        try:
            encoded = encoder.encode(named)
        except Exception as error:
            raise self._culprit(named, error) from None
        text = encoded.decode()
        if "\\u0000" in text and NUL.search(text):
            for key, value in named.items():
                if NUL.search(encoder.encode(value).decode()):
                    raise BadArgs(
                        f"task {self._name!r}: argument {key!r} holds a NUL character, which text cannot store"
                    )
        if may_hold_nan(text):
            for key, value in named.items():
                if holds_nan(value):
                    raise BadArgs(
                        f"task {self._name!r}: argument {key!r} holds NaN or infinity, which JSON cannot express"
                    )
        stored = self.sealer.seal(text)
        size = len(encoded) if stored is text else len(stored)
        if size > most:
            raise BadArgs(
                f"task {self._name!r}: the args take {size} bytes, more than {most}: store the data "
                "elsewhere and pass a reference, or raise App(max_args_size=...)"
            )
        try:
            return stored, self._decoder.decode(encoded)
        except msgspec.ValidationError as error:
            raise BadArgs(f"task {self._name!r}: {name_the_argument(error)}") from None
        except RecursionError:
            raise BadArgs(f"task {self._name!r}: the args are nested too deep") from None

    def decode_args(self, encoded: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode positional-only and other arguments. Raises `MisfitArgs` if the names of the arguments do not fit the
        signature, and `BadArgs` if a value does not. The error's `reason` leaves out the task."""
        kwargs = self._given(self._decode(encoded))
        if self._positional_only:
            return tuple(kwargs.pop(name) for name in self._positional_only if name in kwargs), kwargs
        return (), kwargs

    def _decode(self, encoded: str) -> Any:
        self.prepare()
        if encoded.startswith(BEGINNING):
            encoded = self.sealer.open(encoded)
        try:
            return self._decoder.decode(encoded)
        except msgspec.DecodeError as error:
            if wrong := wrong_names(encoded, self._fields, self._needed):
                reason = f"it takes ({self.describe()}); {wrong}"
                raise MisfitArgs(f"task {self._name!r}: the stored args do not fit: {reason}", reason=reason) from None
            reason = name_the_argument(error)
            raise BadArgs(f"task {self._name!r}: the stored args do not fit: {reason}", reason=reason) from None
        except RecursionError:
            raise BadArgs(f"task {self._name!r}: the stored args are nested too deep") from None

    def _given(self, values: Any) -> dict[str, Any]:
        """The arguments that were given, by name."""
        # If all arguments are needed, all are given.
        if len(self._needed) == len(self._fields):
            return msgspec.structs.asdict(values)
        given: dict[str, Any] = {}
        for name in self._fields:
            value = getattr(values, name)
            if value is not msgspec.UNSET:
                given[name] = value
        return given

    def encode_result(self, result: Any, most: int) -> str:
        """Encode the result. Raises `BadValue`, which names the value's type, if it cannot be encoded."""
        return encode_value(
            result, most, "App(max_result_size=...)", "task {!r} returned", self._name, sealer=self.sealer
        )

    def decode_result(self, encoded: str | None) -> Any:
        self.prepare()
        if encoded is None:
            return None
        return self._result_decoder.decode(self.sealer.open(encoded))

    def named_args(self, encoded: str) -> dict[str, Any]:
        """Decode the arguments by name, with the defaults of those that were not given."""
        return self._named(self._decode(encoded))

    def _named(self, values: Any) -> dict[str, Any]:
        given = self._given(values)
        if len(given) == len(self._fields):
            return given
        defaults = {p.name: p.default for p in self._bindable.parameters.values() if p.default is not p.empty}
        return defaults | given

    @property
    def name(self) -> str:
        """The name of the task, or of the step of a chain."""
        return self._name

    @property
    def names(self) -> list[str]:
        """The names of the arguments, which are known before the annotations are read."""
        return list(self._bindable.parameters)

    @property
    def arguments(self) -> list[str]:
        self.prepare()
        return list(self._fields)

    def describe(self) -> str:
        """Describe the arguments as a person would write them, for lists of tasks."""
        return ", ".join(str(_as_written(p)) for p in self._parameters if p.name != self.context_parameter)

    def typed_arguments(self) -> list[tuple[str, Any, Any]]:
        """Return the name, the annotation and the default of each argument, in order, for forms. An annotation is Any
        if there is none, and a default is `inspect.Parameter.empty`."""
        self.prepare()
        hints = self._hints()
        return [(p.name, hints.get(p.name, Any), p.default) for p in self._bindable.parameters.values()]

    def call_with(self, named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Split arguments that are given by name into those that must be given by position, and the others."""
        self.prepare()
        by_name = dict(named)
        return tuple(by_name.pop(name) for name in self._positional_only if name in by_name), by_name

    def shape(self) -> str:
        """Describe the names of the arguments and which are required. They decide whether stored args are a misfit."""
        self.prepare()
        return shape_of(self._fields, self._needed)

    def prepare(self) -> None:
        """Read the annotations, if that is still to do. Raises `ConfigError` if they name something unknown."""
        if not self.ready:
            try:
                self._build()
            except NameError as error:
                raise ConfigError(f"task {self._name!r}: its annotations name something unknown: {error}") from None

    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self._fn, include_extras=True)

    def _build(self) -> None:
        hints = self._hints()
        self.context_parameter = next((p.name for p in self._parameters if hints.get(p.name) in _CONTEXTS), None)
        self.wants_sync_context = hints.get(self.context_parameter or "") is SyncContext
        self._take_context()
        self.injected = {name: self._injected_type(name, hints) for name in self._injected}
        fields: list[tuple[str, Any, Any]] = []
        for parameter in self._parameters:
            if parameter.name == self.context_parameter:
                continue
            annotation = hints.get(parameter.name, Any)
            if parameter.default is parameter.empty:
                fields.append((parameter.name, annotation, msgspec.field()))
            else:
                optional = Any if annotation is Any else annotation | msgspec.UnsetType
                fields.append((parameter.name, optional, msgspec.field(default=msgspec.UNSET)))
        self._fields = [name for name, _, _ in fields]
        self._needed = [name for name, _, field in fields if field.default is msgspec.NODEFAULT]
        self._positional_only = [
            p.name for p in self._parameters if p.kind is p.POSITIONAL_ONLY and p.name in self._fields
        ]
        self._decoder: msgspec.json.Decoder[Any] = self._decoder_for(
            lambda: msgspec.defstruct(
                "Args",
                [f for f in fields if f[2].default is msgspec.NODEFAULT]
                + [f for f in fields if f[2].default is not msgspec.NODEFAULT],
                forbid_unknown_fields=True,
                kw_only=True,
            ),
            "arguments",
        )
        result = without_restart(hints.get("return", Any)) if self._result is None else self._result
        self._result_decoder: msgspec.json.Decoder[Any] = self._decoder_for(lambda: result, "result")
        self.ready = True

    def _injected_type(self, name: str, hints: Mapping[str, Any]) -> Any:
        if name not in hints:
            raise ConfigError(f"task {self._name!r}: {name!r} = Injected needs an annotation: the type of the resource")
        if self._signature.parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"task {self._name!r}: {name!r}, a resource, must not be positional-only")
        return hints[name]

    def _decoder_for(self, make: Callable[[], Any], what: str) -> msgspec.json.Decoder[Any]:
        try:
            return new_decoder(make())
        except TypeError as error:
            raise ConfigError(f"task {self._name!r}: its {what} cannot be stored as JSON: {error}") from None

    def _take_context(self) -> None:
        named = self._signature.parameters.get(self.context_parameter or "")
        if named is not None and named.kind is named.POSITIONAL_ONLY:
            raise ConfigError(f"task {self._name!r}: {named.name!r}, its context, must not be positional-only")
        if self.context_parameter is None and any(
            p.name == "ctx" and p.annotation is p.empty for p in self._parameters
        ):
            raise ConfigError(
                f"task {self._name!r}: its parameter 'ctx' has no annotation: write 'ctx: Context' for the context of "
                "the job (from stepwell import Context), or annotate an argument of this name with its type"
            )
        kept = [p for p in self._parameters if p.name != self.context_parameter]
        self._bindable = self._signature.replace(parameters=kept)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # A short cut for most calls, without the cost of `bind`: every argument by name. Only for a dict, because
        # another mapping, such as a defaultdict, may return a value for any name.
        if not args and type(kwargs) is dict and not self._positional_only:
            given = cast("dict[str, Any]", kwargs)
            if len(given) == len(self._fields):
                try:
                    return {name: given[name] for name in self._fields}
                except KeyError:
                    pass
        try:
            return self._bindable.bind(*args, **kwargs).arguments
        except TypeError as error:
            wrong = self._wrong_names(args, cast("Mapping[str, Any]", kwargs)) or str(error)
            raise BadArgs(f"task {self._name!r} takes ({self.describe()}): {wrong}") from None

    def _wrong_names(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        try:
            placed = self._bindable.bind_partial(*args).arguments
        except TypeError:
            return None  # too many arguments, or keyword-only ones given by position
        unknown = [name for name in kwargs if name not in self._fields]
        missing = [name for name in self._needed if name not in placed and name not in kwargs]
        said = say_wrong_names(unknown, missing)
        if "context" in missing and self._signature.parameters["context"].annotation is inspect.Parameter.empty:
            return f"{said}; if 'context' is meant to be the context, annotate it: context: Context"
        if option := next((name for name in unknown if name in OPTIONS_OF_USING), None):
            return f"{said}; an option of the job goes in using: task.using({option}=...)"
        return said

    def _culprit(self, named: Mapping[str, Any], error: Exception) -> BadArgs:
        for key, value in named.items():
            try:
                encoder.encode(value)
            except Exception as own:
                kind = type(value).__name__
                return BadArgs(f"task {self._name!r}: argument {key!r} ({kind}) does not encode as JSON: {own}")
        return BadArgs(f"task {self._name!r}: the args do not encode as JSON: {error}")


class _Written(str):
    """An annotation that is text, as every one is after `from __future__ import annotations`, shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _as_written(parameter: inspect.Parameter) -> inspect.Parameter:
    text = parameter.annotation
    return parameter.replace(annotation=_Written(text)) if isinstance(text, str) else parameter
