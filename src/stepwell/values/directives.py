"""Values that a step, a state or a durable function returns to say what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepwell.values.duration import Duration, seconds
from stepwell.values.public_call import public_value

T = TypeVar("T", covariant=True)


@public_value(delay='after="1h"', countdown='after="1h"', wait='after="1h"')
class Next(Generic[T]):
    """Continue: a chain with its next step, which gets `value`; a machine in the state that `value` is.

    With `after` the job waits that long first, without taking a slot.
    """

    __slots__ = ("after", "value")

    def __init__(self, value: T, *, after: Duration | None = None) -> None:
        self.value = value
        self.after = None if after is None else seconds(after, "Next(after)")

    def __repr__(self) -> str:
        return f"Next({self.value!r})" if self.after is None else f"Next({self.value!r}, after={self.after!r})"


@public_value(result="the value first, such as Done(result)")
@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """End the chain or the machine here, with this result."""

    value: T


class Restart:
    """Returned by a durable function: start over with these arguments and no saved steps, under the same id.

    Use it for work without an end, so that the saved steps do not grow without end.
    """

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs: Mapping[str, Any] = kwargs

    def __repr__(self) -> str:
        return f"Restart(*{self.args!r}, **{self.kwargs!r})"
