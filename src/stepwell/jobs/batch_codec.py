"""Encode and decode what one job of a batch task is enqueued with: an element of the list that its function takes."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Union

import msgspec

from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import ConfigError
from stepwell.jobs.codec import Codec


class BatchCodec(Codec):
    """The codec of a function that takes a list, with an element for each job, and returns a list of results."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.returns_nothing = False
        """Whether the function is declared to return None, so that each job's result is None."""
        super().__init__(name, fn)
        if len(self._parameters) != 1 or self._parameters[0].default is not inspect.Parameter.empty:
            raise ConfigError(
                f"task {name!r} takes ({super().describe()}): with batch= it takes one list, without a default: "
                "several arguments of a job go into a dataclass or a tuple"
            )

    def decode_item(self, encoded: str) -> Any:
        """Decode the one argument of a job. Raises as `decode_args` does."""
        self.prepare()
        encoded = self.sealer.open(encoded)
        try:
            return getattr(self._decoder.decode(encoded), self._fields[0])
        except (msgspec.DecodeError, RecursionError):
            self.decode_args(encoded)
            raise

    def arguments_for(self, items: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call of the function with this list."""
        [parameter] = self._parameters
        return ((), {parameter.name: items}) if parameter.kind is parameter.KEYWORD_ONLY else ((items,), {})

    def describe(self) -> str:
        """Describe what a job is enqueued with."""
        [parameter] = self._parameters
        if not self.ready:
            return super().describe()
        return str(parameter.replace(annotation=self._hints()[parameter.name]))

    def _hints(self) -> dict[str, Any]:
        hints = super()._hints()
        for parameter in self._parameters:
            annotation = hints.get(parameter.name)
            if annotation in (Context, SyncContext):
                raise ConfigError(
                    f"task {self._name!r}: with batch= it takes no context: a call is for several jobs, and a context "
                    "belongs to one"
                )
            if typing.get_origin(annotation) is not list:
                raise ConfigError(
                    f"task {self._name!r}: with batch= it takes a list, with an element for each job: annotate "
                    f"{parameter.name!r} with list[...], such as list[str]"
                )
            hints[parameter.name] = typing.get_args(annotation)[0]
        returned = hints.get("return", Any)
        self.returns_nothing = returned is type(None)
        if returned not in (Any, list, type(None)):
            if typing.get_origin(returned) is not list:
                raise ConfigError(
                    f"task {self._name!r}: with batch= it returns a list, with the result of each job, or None: "
                    f"annotate it so, not with {inspect.formatannotation(returned)}"
                )
            hints["return"] = _without_errors(typing.get_args(returned)[0])
        elif returned is list:
            hints["return"] = Any
        return hints


def _without_errors(annotation: Any) -> Any:
    """Remove exceptions from the annotation of an element: a job never ends with one as its result."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    members: tuple[Any, ...] = typing.get_args(annotation)
    kept = tuple(member for member in members if not (inspect.isclass(member) and issubclass(member, BaseException)))
    return annotation if len(kept) == len(members) else Union[kept] if kept else Any  # noqa: UP007
