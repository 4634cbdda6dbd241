"""A step of a chain that runs apart, in a transaction or in a process: for that run it stands for its chain, as a task.

So it goes the way of any task with `transaction=True` or `process=True`, and only its outcome is that of a step: the
job moves on, or ends. Such a step begins a run and ends it: after a commit in doubt, a job that is still held has not
moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stepwell.durable.backend import Durability
from stepwell.durable.job_context import JobContext
from stepwell.durable.journal import read_journal
from stepwell.errors import ConfigError
from stepwell.flows.chain import Chain
from stepwell.flows.flow import Advancing, FlowStep
from stepwell.jobs.task import Task
from stepwell.values.directives import Done
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Failed, Outcome, Succeeded


class StepTask(Task[..., Any]):
    """One step of one job's chain. `n` is its place among what the job has saved; `first`: the job begins with it."""

    def __init__(self, chain: Chain[..., Any], step: FlowStep, job: ClaimedJob, n: int, *, first: bool) -> None:
        assert step.fn is not None
        super().__init__(
            chain.job_store, step.fn, name=chain.name, queue=chain.queue, priority=chain.priority, retry=step.retry,
            timeout=step.timeout, timeout_grace=chain.timeout_grace, keep=chain.keep, keep_failed=chain.keep_failed,
            process=step.process, transaction=step.transaction, drift=chain.drift, codec=step.codec,
        )  # fmt: skip
        self.chain = chain
        self._step = step
        self._job = job
        self._n = n
        self._first = first

    @property
    def shape(self) -> str:
        """The chain's: by that workers tell whether a job fits them."""
        return self.chain.shape

    def context_for(
        self,
        job: ClaimedJob,
        report: Callable[[ClaimedJob, str], None],
        durability: Durability | None,  # noqa: ARG002 a chain has no steps of that kind
    ) -> JobContext:
        return super().context_for(job, report, None)

    def outcome_of_result(self, result: Any, most: int) -> Outcome:
        """What becomes of the job when the step has returned this."""
        moved = self.chain.follow(self._step, result, most)
        if isinstance(moved, Done):
            return Succeeded(self.chain.codec.encode_result(moved.value, most))
        left = self._step.name if self._first else None
        return Advancing(self.chain, self._step, self._job).to(moved, left, max(self._n, 1) + 1)

    def with_failed_step(self, outcome: Outcome) -> Outcome:
        """The same outcome, with the step named that failed."""
        return msgspec.structs.replace(outcome, step=self._step.name) if isinstance(outcome, Failed) else outcome


def for_run(task: Task[..., Any], job: ClaimedJob) -> tuple[Task[..., Any], ClaimedJob]:
    """The task that runs a claimed job, and the job as that is given it: of a chain that stands at a step to be run
    apart, that step. What cannot be told here is left to the chain."""
    if not isinstance(task, Chain) or not task.has_apart:
        return task, job
    try:
        saved = read_journal(job)
        cursor, stored, n = saved.cursor, bytes(saved.input).decode(), saved.last_n
    except Exception:
        return task, job
    step = task.first(job.args) if cursor is None else task.find(cursor)
    if step is None or not step.apart or Advancing(task, step, job).astray(cursor):
        return task, job
    apart = StepTask(task, step, job, n, first=cursor is None)
    if cursor is None:
        return apart, job
    try:
        args = step.as_args(stored)
    except ConfigError:
        args = stored  # it does not fit: the run says so
    return apart, msgspec.structs.replace(job, args=args)


def chain_in_process(module: str, name: str) -> Chain[..., Any]:
    """The chain of that name, in a process that has imported the module which makes it."""
    chain = Chain.made.get((module, name))
    if chain is None:
        raise ConfigError(
            f"chain {name!r} is not made when {module} is imported: for Step(process=True) call app.chain at the top "
            "of a module"
        )
    return chain
