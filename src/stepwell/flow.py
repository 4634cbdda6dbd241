"""What chains and machines have in common: work in steps whose place is kept on the job itself.

Neither has a determinism rule: a step that was left is never run again, and where a job stands is a name, so a deploy
may add steps before or after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from stepwell.duration import Duration, seconds
from stepwell.errors import ConfigError
from stepwell.job_context import JobContext
from stepwell.moves import Done
from stepwell.names import check_name
from stepwell.policy import JobPolicy
from stepwell.retry import Retry


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

    def with_policy(self, policy: JobPolicy) -> FlowStep:
        """The same step in a job that has a policy of its own."""
        timeout = self.timeout if policy.timeout is None else policy.timeout
        return replace(self, retry=policy.retry_after(self.retry), timeout=timeout)


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


def check_policy(what: str, retry: Retry | None, queue: str | None) -> None:
    """Raise if a step cannot have this policy."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"{what}: retry is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    if queue is not None:
        check_name(queue, f"{what}: queue")


def seconds_or(timeout: Duration | None, default: float | None) -> float | None:
    """The timeout of a step: its own, else that of all."""
    return default if timeout is None else seconds(timeout, "timeout")
