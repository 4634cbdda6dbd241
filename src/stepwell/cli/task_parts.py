"""The parts of an app's tasks: steps of chains, states of machines, retries, schedules. Asks no database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stepwell.app import App
from stepwell.calendar.schedule import NewSchedule, following
from stepwell.flows.chain import Chain
from stepwell.flows.flow import FlowStep
from stepwell.flows.machine import Machine
from stepwell.jobs.task import Task
from stepwell.values.duration import describe, seconds
from stepwell.values.retry import Retry


def schedules_of(app: App) -> list[NewSchedule]:
    return [declaration.schedule() for declaration in app.scheduler.declared]


def next_tick(schedule: NewSchedule) -> datetime | None:
    """By this machine's clock, as no database is asked."""
    return next(iter(following(schedule.timing, datetime.now(UTC), 1)), None)


def flow_of(task: Task[..., Any]) -> str | None:
    return "chain" if isinstance(task, Chain) else "machine" if isinstance(task, Machine) else None


def steps_of(task: Task[..., Any]) -> list[FlowStep]:
    if isinstance(task, Chain):
        return task.steps
    return list(task.states.values()) if isinstance(task, Machine) else []


def begins(task: Task[..., Any], step: FlowStep) -> bool:
    """Whether jobs may begin with this step."""
    return step.name in task.starts if isinstance(task, Machine) else step.begin_first is not None


def priority_of(task: Task[..., Any], step: FlowStep) -> int:
    """The priority of a step, for a job that was given none of its own."""
    return task.priority if step.priority is None else step.priority


def said_retry(retry: Retry) -> str:
    if retry.max_attempts == 1:
        return "1 attempt"
    said = f"{retry.max_attempts} attempts, "
    if callable(retry.backoff):
        return said + f"pauses by {getattr(retry.backoff, '__qualname__', repr(retry.backoff))}"
    initial, cap = seconds(retry.initial, "initial"), seconds(retry.cap, "cap")
    if retry.backoff == "fixed":
        return said + f"every {describe(min(initial, cap))}"
    return said + f"{retry.backoff} from {describe(initial)} to {describe(cap)}"
