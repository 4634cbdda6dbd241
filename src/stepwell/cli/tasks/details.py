"""Read the parts of an app's tasks: steps of chains, states of machines, schedules. Needs no database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stepwell.app import App
from stepwell.calendar.schedule import NewSchedule, following
from stepwell.flows.chain import Chain
from stepwell.flows.flow import FlowStep
from stepwell.flows.machine import Machine
from stepwell.jobs.task import Task


def schedules_of(app: App) -> list[NewSchedule]:
    return [declaration.schedule() for declaration in app.scheduler.declared]


def next_tick(schedule: NewSchedule) -> datetime | None:
    """When the schedule is due next, by this machine's clock."""
    return next(iter(following(schedule.timing, datetime.now(UTC), 1)), None)


def flow_of(task: Task[..., Any]) -> str | None:
    return "chain" if isinstance(task, Chain) else "machine" if isinstance(task, Machine) else None


def steps_of(task: Task[..., Any]) -> list[FlowStep]:
    if isinstance(task, Chain):
        return task.steps
    return list(task.states.values()) if isinstance(task, Machine) else []


def can_start_at(task: Task[..., Any], step: FlowStep) -> bool:
    return step.name in task.starts if isinstance(task, Machine) else step.begin_first is not None


def priority_of(task: Task[..., Any], step: FlowStep) -> int:
    """The priority of a step, for a job without a priority of its own."""
    return task.priority if step.priority is None else step.priority
