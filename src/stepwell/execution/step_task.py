"""Runs a chain's step that needs a transaction or a process of its own as a task, in a run of its own.

It runs like any task with `transaction=True` or `process=True`, but its outcome is a step's: the job advances or ends.
If a commit is in doubt and this run still holds the job, the job has not advanced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stepwell.durable.backend import Durability
from stepwell.durable.job_context import JobContext
from stepwell.durable.journal import read_journal
from stepwell.errors import CodecError, ConfigError
from stepwell.flows.chain import Chain
from stepwell.flows.flow import Advancing, FlowStep, at_first
from stepwell.jobs.task import Task
from stepwell.values.directives import Done
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Failed, Outcome, Succeeded


class StepTask(Task[..., Any]):
    """One step of one job's chain. `n` is its number among the job's saved steps; `first`: the job begins with it."""

    def __init__(self, chain: Chain[..., Any], step: FlowStep, job: ClaimedJob, n: int, *, first: bool) -> None:
        assert step.fn is not None
        super().__init__(
            chain.job_store, step.fn, name=chain.name, queue=chain.queue, priority=chain.priority, retry=step.retry,
            timeout=step.timeout, timeout_grace=chain.timeout_grace, keep=chain.keep, keep_failed=chain.keep_failed,
            process=step.process, transaction=step.transaction, drift=chain.drift, codec=step.codec,
            sources=chain.sources, logs=chain.logs,
        )  # fmt: skip
        self.chain = chain
        self._step = step
        self._job = job
        self._n = n
        self._first = first

    @property
    def shape(self) -> str:
        """The chain's shape: by that, workers find out whether a job fits their code."""
        return self.chain.shape

    def context_for(
        self,
        job: ClaimedJob,
        report: Callable[[ClaimedJob, str], None],
        durability: Durability | None,  # noqa: ARG002 a chain has no durable steps
    ) -> JobContext:
        return super().context_for(job, report, None)

    def outcome_of_result(self, result: Any, most: int) -> Outcome:
        moved = self.chain.follow(self._step, result, most)
        if isinstance(moved, Done):
            return Succeeded(self.chain.codec.encode_result(moved.value, most))
        left = self._step.name if self._first else None
        return Advancing(self.chain, self._step, self._job).to(moved, left, max(self._n, 1) + 1)

    def with_step(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Failed):
            outcome = msgspec.structs.replace(outcome, step=self._step.name)
        return at_first(outcome, self._step) if self._first else outcome


def for_run(task: Task[..., Any], job: ClaimedJob) -> tuple[Task[..., Any], ClaimedJob]:
    """The task that runs a claimed job, and the job with that task's args: a `StepTask` if the job is at a chain's step
    that runs apart, else the task itself. A chain reports a job that cannot be read."""
    if not isinstance(task, Chain) or not task.has_apart:
        return task, job
    try:
        saved = read_journal(job)
        cursor, stored, n = saved.cursor, bytes(saved.input).decode(), saved.last_n
    except Exception:
        return task, job
    step = task.first(job.args, saved.first_step) if cursor is None else task.find(cursor)
    if step is None or not step.apart or saved.of_function:
        return task, job
    if Advancing(task, step, job).astray(cursor or saved.first_step):
        return task, job
    apart = StepTask(task, step, job, n, first=cursor is None)
    if cursor is None:
        return apart, job
    try:
        args = step.as_args(stored)
    except (ConfigError, CodecError):
        args = stored  # it does not fit: the run reports that
    return apart, msgspec.structs.replace(job, args=args)


def chain_in_process(module: str, name: str) -> Chain[..., Any]:
    """The chain of that name, in a process that has imported the module that defines it."""
    chain = Chain.made.get((module, name))
    if chain is None:
        raise ConfigError(
            f"chain {name!r} is not defined when {module} is imported: for Step(process=True) call app.chain at the "
            "top of a module"
        )
    return chain
