"""What chains and machines have in common: work in steps whose place is kept on the job itself.

Neither has a determinism rule: a step that was left is never run again, and where a job stands is a name, so a deploy
may add steps before or after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from stepwell.duration import Duration, seconds
from stepwell.errors import BadArgs, BadValue, ConfigError
from stepwell.job_context import JobContext
from stepwell.moves import Done
from stepwell.names import check_name
from stepwell.retry import Retry
from stepwell.values import encode_value


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A step of a chain, or a state of a machine, ready to be run."""

    name: str
    retry: Retry
    timeout: float | None
    queue: str | None
    is_async: bool
    begin: Callable[[str, JobContext], Callable[[], Any]]
    """From what was stored, and a context, make the call."""
    begin_first: Callable[[str, JobContext], Callable[[], Any]] | None = None
    """The same from the args of the job, for a step that it may begin with."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What comes after a step: its name, and its input as JSON."""

    name: str
    input: str
    after: float | None


class Flow(Protocol):
    """What the executor must know of a chain or machine."""

    def first(self, args: str) -> FlowStep: ...
    def find(self, name: str) -> FlowStep | None: ...
    def follow(self, step: FlowStep, result: Any, most: int) -> Moved | Done[Any]: ...
    def enter(self, step: str | None, value: Any) -> Moved: ...


def check_policy(what: str, retry: Retry | None, queue: str | None) -> None:
    """Raise if a step cannot have this policy."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"{what}: retry is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    if queue is not None:
        check_name(queue, f"{what}: queue")


def seconds_or(timeout: Duration | None, default: float | None) -> float | None:
    """The timeout of a step: its own, else that of all."""
    return default if timeout is None else seconds(timeout, "timeout")


# No database can be told to accept more; most accept less, and say so ("stepwell limits").
_LARGEST_INPUT = 512 * 1024 * 1024


def enter_step(step: FlowStep, value: Any, whose: str) -> Moved:
    """The step with this value as its input. Raises `BadArgs` if it does not fit."""
    what = f"the input of step {step.name!r} of {whose}"
    try:
        encoded = encode_value(value, _LARGEST_INPUT, "a step", "{} is", what)
        # The call is made, and not run.
        step.begin(encoded, cast("Any", None))
    except BadValue as error:
        raise BadArgs(str(error)) from None
    except BadArgs as error:
        raise BadArgs(f"{what} does not fit: {error}") from None
    return Moved(step.name, encoded, None)
