"""The common part of chains and machines: steps, and how a job gets from one to the next.

The job stores the name of its current step, so a deploy may add steps before or after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from stepwell.durable.job_context import JobContext
from stepwell.errors import BadArgs, BadValue
from stepwell.jobs.codec import Codec
from stepwell.jobs.task import StepInput, Task
from stepwell.postgres.callers.sessions import TransactionOption
from stepwell.values.bounds import check_name
from stepwell.values.directives import Done
from stepwell.values.duration import Duration, seconds
from stepwell.values.job import ClaimedJob
from stepwell.values.json import LARGEST_VALUE, encode_value
from stepwell.values.outcome import Advanced, Failed, Outcome, Snoozed
from stepwell.values.policy import JobPolicy, check_retry
from stepwell.values.retry import Retry
from stepwell.values.sealing import Sealer


class FlowStep(msgspec.Struct, frozen=True):
    """A step of a chain, or a state of a machine, ready to run."""

    name: str
    retry: Retry
    timeout: float | None
    queue: str | None
    is_async: bool
    begin: Callable[[str, JobContext], Callable[[], Any]]
    """Make the call from the stored input and a context."""
    begin_first: Callable[[str, JobContext], Callable[[], Any]]
    """The same from the args of the job, for the step that it begins with."""
    priority: int | None = None
    transaction: TransactionOption = False
    process: bool = False
    fn: Callable[..., Any] | None = None
    """The function of a chain's step. `codec` reads its arguments, and `as_args` makes them from the stored input."""
    codec: Codec | None = None
    as_args: Callable[[str], str] = str

    @property
    def apart(self) -> bool:
        """Whether the step is a run of its own, not in one slot with the steps before and after it."""
        return self.transaction is not False or self.process

    def with_policy(self, policy: JobPolicy) -> FlowStep:
        timeout = self.timeout if policy.timeout is None else policy.timeout
        return msgspec.structs.replace(self, retry=policy.applied_to(self.retry), timeout=timeout)


class Advancing(msgspec.Struct, frozen=True):
    """How a job gets from one step to the next: in which queue, and with which priority."""

    task: Task[..., Any]
    step: FlowStep
    job: ClaimedJob

    def to(self, goal: StepInput, left: str | None, n: int) -> Advanced:
        """The outcome that hands the job back, to go on with the next step. A step without a queue or a priority of its
        own keeps the job's, or gets the task's if the step before it had one of its own."""
        flow: Flow = self.task.flow
        following = flow.find(goal.name)
        assert following is not None
        queue = following.queue or (self.job.queue if self.step.queue is None else self.task.queue)
        priority = -self.job.rank if self.step.priority is None else self.task.priority
        return self._hand_back(goal, left, n, queue, priority if following.priority is None else following.priority)

    def in_place(self, goal: StepInput, advanced: Advanced) -> bool:
        """Whether the next step can follow at once, in the same slot."""
        flow: Flow = self.task.flow
        following = flow.find(goal.name)
        elsewhere = advanced.queue is not None or advanced.priority is not None
        return goal.after is None and not elsewhere and following is not None and not following.apart

    def astray(self, position: str | None) -> bool:
        """Whether a job is at its step with a queue or a priority other than the step's, after a retry or a fork."""
        if position is None:
            return False
        return self.step.queue not in (None, self.job.queue) or self.step.priority not in (None, -self.job.rank)

    def brought_back(self, stored: str | None, n: int) -> Advanced:
        """The outcome that hands such a job back, to be claimed from the queue of its step. `stored` is the step's
        input; None: the job begins with the step, which has the position 1 and gets the job's args."""
        queue = self.step.queue or self.job.queue
        priority = -self.job.rank if self.step.priority is None else self.step.priority
        goal = StepInput(self.step.name, stored or "null", None)
        return self._hand_back(goal, None, 1 if stored is None else max(n, 2), queue, priority)

    def _hand_back(self, goal: StepInput, left: str | None, n: int, queue: str, priority: int) -> Advanced:
        return Advanced(
            left, goal.name, goal.input, n, goal.after or 0.0, queue if queue != self.job.queue else None,
            priority if priority != -self.job.rank else None,
        )  # fmt: skip


class Flow(Protocol):
    """A chain or a machine, as the executor sees it."""

    def first(self, args: str, cursor: str | None) -> FlowStep | None: ...
    def find(self, name: str) -> FlowStep | None: ...
    def follow(self, step: FlowStep, result: Any, most: int) -> StepInput | Done[Any]: ...
    def enter(self, step: str | None, value: Any) -> StepInput: ...


def at_first(outcome: Outcome, step: FlowStep) -> Outcome:
    """Note in an outcome that the job is still at the step that it began with. If its args do not fit that step, it has
    not begun: they may be for the first step of other code."""
    if isinstance(outcome, Snoozed) or (isinstance(outcome, Failed) and outcome.reason != "bad_args"):
        return msgspec.structs.replace(outcome, first_step=step.name)
    return outcome


def check_step_options(what: str, retry: Retry | None, queue: str | None) -> None:
    check_retry(retry, f"{what}: retry")
    if queue is not None:
        check_name(queue, f"{what}: queue")


def seconds_or(timeout: Duration | None, default: float | None) -> float | None:
    return default if timeout is None else seconds(timeout, "timeout")


def enter_step(step: FlowStep, value: Any, whose: str, sealer: Sealer) -> StepInput:
    """Make a job go on with this step and this input. Raises `BadArgs` if the input does not fit."""
    what = f"the input of step {step.name!r} of {whose}"
    try:
        encoded = encode_value(value, LARGEST_VALUE, "a step", "{} is", what, sealer=sealer)
        # This makes the call, and does not run it.
        step.begin(encoded, cast("Any", None))
    except BadValue as error:
        raise BadArgs(str(error)) from None
    except BadArgs as error:
        # The message is about stored args, but here nothing is stored yet.
        raise BadArgs(f"{what} does not fit: {error.reason or error}") from None
    return StepInput(step.name, encoded, None)
