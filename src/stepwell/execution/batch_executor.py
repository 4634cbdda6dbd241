"""Run the function of a batch task once for several jobs, and return the outcome of each.

A job whose args cannot be decoded is left out of the call. An exception that the function raises is every other job's;
one that it returns in the list is its own job's, as if that job had raised it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

from stepwell.errors import BadValue
from stepwell.errors.text import article
from stepwell.execution.executor import outcome_of, outcome_of_args
from stepwell.jobs.batch_task import BatchTask
from stepwell.jobs.task import Task
from stepwell.resources.opened import injected
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Outcome, Succeeded

_NOTHING = Succeeded("null")


async def execute_batch(task: BatchTask[Any, Any], jobs: Sequence[ClaimedJob], max_result_size: int) -> list[Outcome]:
    """Call an `async def`. The outcomes are in the order of the jobs."""
    call = _Call(task, jobs, max_result_size)
    if call.items:
        try:
            positional, named = _arguments(task, call.items)
            call.returned(await task.fn(*positional, **named))
        except BaseException as error:
            call.raised(error)
    return call.outcomes


def execute_plain_batch(task: BatchTask[Any, Any], jobs: Sequence[ClaimedJob], max_result_size: int) -> list[Outcome]:
    """Call a plain function."""
    call = _Call(task, jobs, max_result_size)
    if call.items:
        try:
            positional, named = _arguments(task, call.items)
            call.returned(task.fn(*positional, **named))
        except BaseException as error:
            call.raised(error)
    return call.outcomes


def _arguments(task: BatchTask[Any, Any], items: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional, named = task.codec.arguments_for(items)
    if task.codec.injected:
        named |= injected(task.codec.injected, task.name)
    return positional, named


class _Call:
    """One call of the function. `outcomes` has None for the jobs in it, until it has ended."""

    def __init__(self, task: BatchTask[Any, Any], jobs: Sequence[ClaimedJob], max_result_size: int) -> None:
        self._task = task
        self._jobs = jobs
        self._most = max_result_size
        self._indexes: list[int] = []
        self.items: list[Any] = []
        self.outcomes: list[Any] = [None] * len(jobs)
        decode = task.codec.decode_item
        for index, job in enumerate(jobs):
            try:
                self.items.append(decode(job.args))
                self._indexes.append(index)
            except BaseException as error:
                self.outcomes[index] = outcome_of_args(error, own_task(task, job), job.attempt)
        # The function gets this list, and may change it.
        self._count = len(self.items)

    def returned(self, result: object) -> None:
        """Give each job its element of the result. Raises `BadValue` if there is not one for each."""
        if result is None and self._task.codec.returns_nothing:
            for index in self._indexes:
                self.outcomes[index] = _NOTHING
            return
        results = self._checked(result)
        jobs, outcomes = self._jobs, self.outcomes
        judge, most = self._task.outcome_of_result, self._most
        for index, value in zip(self._indexes, results, strict=True):
            try:
                if isinstance(value, BaseException):
                    # Raised here, so that its traceback begins with this file's frame, as `outcome_of` expects.
                    raise value
                outcomes[index] = judge(value, most)
            except BaseException as error:
                job = jobs[index]
                outcomes[index] = outcome_of(error, own_task(self._task, job), job.attempt)

    def raised(self, error: BaseException) -> None:
        """Give each job this error. Jobs of the same policy and attempt get the same outcome: they are tried again at
        the same time, so they can share a batch again."""
        frames = error.__traceback__
        known: dict[tuple[int, int], Outcome] = {}
        for index in self._indexes:
            job = self._jobs[index]
            task = own_task(self._task, job)
            outcome = known.get((id(task), job.attempt))
            if outcome is None:
                BaseException.with_traceback(error, frames)  # `outcome_of` takes the first frame away
                outcome = known[id(task), job.attempt] = outcome_of(error, task, job.attempt)
            self.outcomes[index] = outcome

    def _checked(self, result: object) -> list[Any]:
        name = self._task.name
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            result.close()
            kind = "coroutine" if inspect.iscoroutine(result) else "generator"
            raise BadValue(f"task {name!r} returned a {kind}: declare it as 'async def', or return a list")
        if not isinstance(result, list):
            said = "None" if result is None else article(type(result).__name__)
            raise BadValue(
                f"task {name!r} returned {said}: with batch= it returns a list, with the result of each job"
                + (", or is annotated with '-> None'" if result is None else "")
            )
        results = cast("list[Any]", result)
        if len(results) != self._count:
            raise BadValue(
                f"task {name!r} got a list of {self._count} and returned one of {len(results)}: it returns a list with "
                "the result of each job, in their order"
            )
        return results


def own_task(task: Task[..., Any], job: ClaimedJob) -> Task[..., Any]:
    """The task with the job's own policy. Whoever gathered the batch has reported a policy that cannot be read."""
    return task if job.policy is None else task.for_job(job, lambda _: None)
