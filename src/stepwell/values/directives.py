"""What a step, a state or a durable function returns to say what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepwell.values.duration import Duration, seconds

T = TypeVar("T", covariant=True)


class Next(Generic[T]):
    """Go on: in a chain to the next step, which is given `value`; in a machine to the state that `value` is.

    With `after` the job waits for so long, without a slot.
    """

    __slots__ = ("after", "value")

    def __init__(self, value: T, *, after: Duration | None = None) -> None:
        self.value = value
        self.after = None if after is None else seconds(after, "Next(after)")

    def __repr__(self) -> str:
        return f"Next({self.value!r})" if self.after is None else f"Next({self.value!r}, after={self.after!r})"


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """End the chain or the machine here, with this result."""

    value: T


class Restart:
    """Returned by a durable function: begin again with these arguments and no steps, under the same id.

    For work that goes on for ever, so that what it has saved does not.
    """

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs: Mapping[str, Any] = kwargs

    def __repr__(self) -> str:
        return f"Restart(*{self.args!r}, **{self.kwargs!r})"
