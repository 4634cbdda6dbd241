"""Print tables of an app's tasks, of the steps of its chains and machines, and of its schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.calendar.schedule import NewSchedule, from_timing
from stepwell.cli.output import Column, table
from stepwell.cli.tasks.details import can_start_at, flow_of, next_tick, priority_of
from stepwell.cli.wording import catchup_text, keep_text, retry_text, timing_text
from stepwell.flows.flow import FlowStep
from stepwell.jobs.task import Task
from stepwell.values.duration import describe


def print_tasks(found: Sequence[Task[..., Any]]) -> None:
    table(
        found,
        [
            Column("task", lambda task: task.name, cut=True),
            Column("kind", lambda task: flow_of(task) or task.kind),
            Column("queue", lambda task: task.queue, cut=True),
            Column("priority", lambda task: task.priority, right=True),
            Column("retry", lambda task: retry_text(task.retry), cut=True),
            Column("timeout", lambda task: _timeout(task.timeout)),
            Column("keep", lambda task: keep_text(task.keep)),
            Column("keep failed", lambda task: keep_text(task.keep_failed)),
            Column("arguments", lambda task: task.codec.describe(), cut=True),
        ],
        empty="the app has no tasks",
    )


def print_steps(flows: Sequence[tuple[Task[..., Any], FlowStep]]) -> None:
    table(
        flows,
        [
            Column("chain or machine", lambda flow: flow[0].name, cut=True),
            Column("step or state", lambda flow: flow[1].name, cut=True),
            Column("begins", lambda flow: "begins" if can_start_at(*flow) else ""),
            Column("queue", lambda flow: flow[1].queue or flow[0].queue, cut=True),
            Column("priority", lambda flow: priority_of(*flow), right=True),
            Column("runs in", lambda flow: _runs_in(flow[1])),
            Column("retry", lambda flow: retry_text(flow[1].retry), cut=True),
            Column("timeout", lambda flow: _timeout(flow[1].timeout)),
        ],
    )


def print_schedules(schedules: Sequence[NewSchedule]) -> None:
    table(
        schedules,
        [
            Column("schedule", lambda schedule: schedule.name, cut=True),
            Column("task", lambda schedule: schedule.task, cut=True),
            Column("when", lambda schedule: timing_text(*from_timing(schedule.timing)), cut=True),
            Column("next", lambda schedule: next_tick(schedule) or "never"),
            Column("queue", lambda schedule: schedule.queue, cut=True),
            Column("overlap", lambda schedule: schedule.overlap),
            Column("catchup", lambda schedule: catchup_text(schedule.catchup)),
            Column("args", lambda schedule: schedule.args, cut=True),
        ],
    )


def _runs_in(step: FlowStep) -> str:
    return "transaction" if step.transaction else "process" if step.process else ""


def _timeout(timeout: float | None) -> str:
    return "none" if timeout is None else describe(timeout)
