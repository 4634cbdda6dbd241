"""Run a job of a chain or machine: step after step in one slot, for as long as the next one may follow at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stepwell.durable.backend import Durability, StepBackend
from stepwell.durable.backoff import pause_after
from stepwell.durable.context import Context
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.journal import read_journal
from stepwell.durable.run_state import RunState
from stepwell.durable.sync_context import SyncContext
from stepwell.durable.time_limit import TimeLimit, TimeLimitExpired
from stepwell.errors import BadArgs, MisfitArgs, StepNotFound
from stepwell.execution.executor import outcome_of
from stepwell.flows.flow import Advancing, Flow, FlowStep
from stepwell.jobs.task import Task
from stepwell.values.directives import Done
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Advanced, Failed, Misfit, Outcome, Succeeded


async def execute_flow(
    task: Task[..., Any],
    job: ClaimedJob,
    report: Callable[[ClaimedJob, str], None],
    durability: Durability,
    max_result_size: int,
    began: Callable[[JobContext], None],
) -> Outcome:
    """Run it until it ends, fails, or has to wait. `began` is told the context of each step."""
    flow: Flow = task.flow
    backend, saved = durability.backend, read_journal(job)
    cursor, stored, attempt, n = saved.cursor, bytes(saved.input).decode(), job.attempt, saved.last_n
    while True:
        step: FlowStep | None = None
        begun = False
        try:
            step = flow.first(job.args) if cursor is None else flow.find(cursor)
            if step is None:
                raise StepNotFound(
                    f"{task.name!r} has no step {cursor!r} any more: put it back, or retry the job from another step"
                )
            going = Advancing(task, step, job)
            if going.astray(cursor):
                return going.brought_back(stored, n)
            assert not step.apart, "whoever runs a job sees to such a step"
            ctx = (Context if step.is_async else SyncContext)(RunState(job, step.timeout, report))
            run_of(ctx).begin_step(attempt)
            began(ctx)
            begin = step.begin if cursor is not None else step.begin_first
            assert begin is not None
            call = begin(job.args if cursor is None else stored, ctx)
            begun = True
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
            return _failed(error, task, step, attempt, begun=begun)


async def _call(step: FlowStep, call: Callable[[], Any], backend: StepBackend) -> Any:
    work: Awaitable[Any] = call() if step.is_async else backend.run_in_thread(call)
    if step.timeout is None:
        return await work
    async with TimeLimit(step.timeout, f"step {step.name!r}"):
        return await work


def _failed(error: BaseException, task: Task[..., Any], step: FlowStep | None, attempt: int, *, begun: bool) -> Outcome:
    policy = task if step is None else step
    outcome = outcome_of(error, policy, attempt)
    if not isinstance(outcome, Failed):
        return outcome
    outcome = msgspec.structs.replace(outcome, attempt=attempt, step=None if step is None else step.name)
    if not begun and isinstance(error, BadArgs):
        bad = msgspec.structs.replace(outcome, reason="bad_args", delay=None)
        return Misfit(bad) if isinstance(error, MisfitArgs) else bad
    if isinstance(error, TimeLimitExpired):
        return msgspec.structs.replace(
            outcome, reason="timeout", type="TimeoutError",
            delay=pause_after(error, policy.retry, attempt, policy.name), max_attempts=policy.retry.max_attempts,
        )  # fmt: skip
    failed = msgspec.structs.replace(outcome, max_attempts=policy.retry.max_attempts)
    # A step that is not there may be in the next deploy, or in the last one.
    return Misfit(failed) if step is None and isinstance(error, StepNotFound) else failed
