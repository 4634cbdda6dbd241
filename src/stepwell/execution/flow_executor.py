"""Run a job of a chain or machine: step after step in one slot, as long as the next step may follow at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stepwell.durable.backend import Durability, StepBackend
from stepwell.durable.context import Context
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.journal import read_journal
from stepwell.durable.run_state import RunState
from stepwell.durable.sync_context import SyncContext
from stepwell.durable.time_limit import TimeLimit, TimeLimitExpired
from stepwell.errors import BadArgs, StepChanged, StepNotFound
from stepwell.execution.executor import outcome_of, outcome_of_args
from stepwell.flows.flow import Advancing, Flow, FlowStep, at_first
from stepwell.jobs.task import Task
from stepwell.plugins.step import StepRun
from stepwell.values.directives import Done
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Advanced, Failed, Misfit, Outcome, Succeeded
from stepwell.values.retry import pause_after


async def execute_flow(
    task: Task[..., Any],
    job: ClaimedJob,
    report: Callable[[ClaimedJob, str], None],
    durability: Durability,
    max_result_size: int,
    began: Callable[[JobContext], None],
) -> Outcome:
    """Run the job until it ends, fails, or has to wait. `began` is called with the context of each step."""
    flow: Flow = task.flow
    backend, saved = durability.backend, read_journal(job)
    cursor, stored, attempt, n = saved.cursor, bytes(saved.input).decode(), job.attempt, saved.last_n
    while True:
        step: FlowStep | None = None
        try:
            if saved.of_function:
                raise StepChanged(
                    f"job {job.id} ({task.name}) has saved the steps of a durable function, and {task.name!r} is "
                    "a chain or a machine now: give that another name"
                )
            step = flow.first(job.args, saved.first_step) if cursor is None else flow.find(cursor)
            if step is None:
                raise StepNotFound(
                    f"{task.name!r} has no step {cursor or saved.first_step!r} in this code: put it back, or retry "
                    "the job from another one"
                )
            going = Advancing(task, step, job)
            if going.astray(cursor or saved.first_step):
                return going.brought_back(None if cursor is None else stored, n)
            assert not step.apart, "the runner runs such a step as a StepTask"
            ctx = (Context if step.is_async else SyncContext)(RunState(job, step.timeout, report))
            run_of(ctx).own_attempt = attempt
            began(ctx)
            call = step.begin_first(job.args, ctx) if cursor is None else step.begin(stored, ctx)
        except BaseException as error:
            outcome = _not_begun(error, task, step, attempt)
            return at_first(outcome, step) if step is not None and cursor is None else outcome
        try:
            if backend.wrap_step is None:
                result = await _call(step, call, backend)
            else:
                with backend.wrap_step(StepRun(job, step.name)):
                    result = await _call(step, call, backend)
            moved = flow.follow(step, result, max_result_size)
            if isinstance(moved, Done):
                return Succeeded(task.codec.encode_result(moved.value, max_result_size))
            left = step.name if cursor is None else None
            n = max(n, 1) + 1
            advanced = going.to(moved, left, n)
            if not going.in_place(moved, advanced):
                return advanced
            await backend.advance(job, left, moved.name, moved.input, n)
            cursor, stored, attempt = moved.name, moved.input, 1
            if durability.always_replay:
                return Advanced(None, cursor, stored, n, 0.0, None)
        except BaseException as error:
            outcome = _failed(error, step, attempt)
            return at_first(outcome, step) if cursor is None else outcome


async def _call(step: FlowStep, call: Callable[[], Any], backend: StepBackend) -> Any:
    if step.timeout is None:
        return await (call() if step.is_async else backend.run_in_thread(call))
    async with TimeLimit(step.timeout, f"step {step.name!r}"):
        return await (call() if step.is_async else backend.run_in_thread(call))


def _not_begun(error: BaseException, task: Task[..., Any], step: FlowStep | None, attempt: int) -> Outcome:
    """The outcome of a job whose step was not found, or whose input could not be decoded."""
    if isinstance(error, BadArgs):
        outcome = outcome_of_args(error, step or task, attempt)
        if isinstance(outcome, Misfit):
            return Misfit(_at(step, outcome.failed, attempt))
        return _at(step, outcome, attempt) if isinstance(outcome, Failed) else outcome
    if step is not None:
        return _failed(error, step, attempt)
    outcome = outcome_of(error, task, attempt)
    if not isinstance(outcome, Failed):
        return outcome
    failed = msgspec.structs.replace(outcome, attempt=attempt, max_attempts=task.retry.max_attempts)
    # The next deploy, or the last one, may have a step that this code lacks.
    return Misfit(failed) if isinstance(error, StepNotFound) else failed


def _failed(error: BaseException, step: FlowStep, attempt: int) -> Outcome:
    outcome = outcome_of(error, step, attempt)
    if not isinstance(outcome, Failed):
        return outcome
    failed = msgspec.structs.replace(_at(step, outcome, attempt), max_attempts=step.retry.max_attempts)
    if isinstance(error, TimeLimitExpired):
        delay, wrong = pause_after(error, step.retry, attempt)
        return msgspec.structs.replace(failed, reason="timeout", delay=delay, backoff_error=wrong)
    return failed


def _at(step: FlowStep | None, failed: Failed, attempt: int) -> Failed:
    return msgspec.structs.replace(failed, attempt=attempt, step=None if step is None else step.name)
