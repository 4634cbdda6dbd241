"""How the arguments of a Django task are stored: positional ones as a list, the others by name, all as plain JSON.

Django gives a task plain JSON values, whatever its annotations say, and its functions may take `*args`. So these are
not stored by name like those of `@app.task`. Templates such as unique="{user_id}" still name the function's
parameters.
"""
# pyright: basic

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.contrib.django.tasks_api import normalize_json
from stepwell.errors import BadArgs
from stepwell.jobs.codec import Codec

_BY_NAME = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class StoredArgs(Codec):
    """Encodes the arguments of one Django task. `handler` is what a worker calls with them."""

    def __init__(
        self, name: str, handler: Callable[..., Any], func: Callable[..., Any], *, takes_context: bool
    ) -> None:
        parameters = list(inspect.signature(func).parameters.values())
        self._of_func = inspect.Signature(parameters[1:] if takes_context else parameters)
        super().__init__(name, handler)

    @property
    def names(self) -> list[str]:
        return [p.name for p in self._of_func.parameters.values() if p.kind in _BY_NAME]

    def describe(self) -> str:
        return ", ".join(map(str, self._of_func.parameters.values()))

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Raises `TypeError`, as a call would, if the arguments do not fit the function or are no JSON."""
        try:
            self._of_func.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self._name!r} takes ({self.describe()}): {error}") from None
        return {"args": normalize_json(args), "kwargs": normalize_json(kwargs)}

    def _named(self, values: Any) -> dict[str, Any]:
        stored = self._given(values)
        try:
            bound = self._of_func.bind(*stored.get("args", ()), **stored.get("kwargs", {}))
        except TypeError as error:
            raise BadArgs(f"task {self._name!r} takes ({self.describe()}): {error}") from None
        bound.apply_defaults()
        return {name: bound.arguments[name] for name in self.names}
