"""Run a job of a chain or machine: step after step in one slot, for as long as the next one may follow at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import msgspec

from stepwell.durable.backoff import pause_after
from stepwell.durable.context import Context
from stepwell.durable.effects import Store
from stepwell.durable.job_context import Durability, JobContext
from stepwell.durable.journal import Journal
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import BadArgs, MisfitArgs, StepNotFound
from stepwell.execution.executor import outcome_of
from stepwell.flows.flow import Advancing, Flow, FlowStep
from stepwell.jobs.task import Task
from stepwell.values.directives import Done
from stepwell.values.duration import describe
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Advanced, Failed, Misfit, Outcome, Succeeded


class FlowStore(Store, Protocol):
    """A store that can move a job on."""

    async def advance(self, left: str | None, cursor: str, value: str, n: int) -> None: ...


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
    store = cast("FlowStore", durability.store(job))
    journal = Journal(job)
    cursor, stored, attempt, n = journal.cursor, journal.input, job.attempt, journal.last_n
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
            ctx = (Context if step.is_async else SyncContext)(job, step.timeout, report, None)
            ctx.begin_step(attempt)
            began(ctx)
            begin = step.begin if cursor is not None else step.begin_first
            assert begin is not None
            call = begin(job.args if cursor is None else stored, ctx)
            begun = True
            result = await _call(step, call, store)
            moved = flow.follow(step, result, max_result_size)
            if isinstance(moved, Done):
                return Succeeded(task.codec.encode_result(moved.value, max_result_size))
            left = step.name if cursor is None else None
            n = max(n, 1) + 1
            advanced = going.to(moved, left, n)
            if not going.in_place(moved, advanced):
                return advanced
            await store.advance(left, moved.name, moved.input, n)
            cursor, stored, attempt = moved.name, moved.input, 1
            if durability.always_replay:
                return Advanced(None, cursor, stored, n, 0.0, None)
        except BaseException as error:
            return _failed(error, task, step, attempt, begun=begun)


async def _call(step: FlowStep, call: Callable[[], Any], store: Store) -> Any:
    work: Awaitable[Any] = call() if step.is_async else store.run_plain(call)
    if step.timeout is None:
        return await work
    scope = asyncio.timeout(step.timeout)
    try:
        async with scope:
            return await work
    except TimeoutError as error:
        if scope.expired():
            raise _Late(step) from error
        raise


class _Late(TimeoutError):
    def __init__(self, step: FlowStep) -> None:
        super().__init__(f"step {step.name!r} ran longer than its timeout of {describe(step.timeout or 0)}")


def _failed(error: BaseException, task: Task[..., Any], step: FlowStep | None, attempt: int, *, begun: bool) -> Outcome:
    policy = task if step is None else step
    outcome = outcome_of(error, policy, attempt)
    if not isinstance(outcome, Failed):
        return outcome
    outcome = msgspec.structs.replace(outcome, attempt=attempt, step=None if step is None else step.name)
    if not begun and isinstance(error, BadArgs):
        bad = msgspec.structs.replace(outcome, reason="bad_args", delay=None)
        return Misfit(bad) if isinstance(error, MisfitArgs) else bad
    if isinstance(error, _Late):
        return msgspec.structs.replace(
            outcome, reason="timeout", type="TimeoutError",
            delay=pause_after(error, policy.retry, attempt, policy.name), max_attempts=policy.retry.max_attempts,
        )  # fmt: skip
    failed = msgspec.structs.replace(outcome, max_attempts=policy.retry.max_attempts)
    # A step that is not there may be in the next deploy, or in the last one.
    return Misfit(failed) if step is None and isinstance(error, StepNotFound) else failed
