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
        [
            Column("task", cut=True),
            Column("kind"),
            Column("queue", cut=True),
            Column("priority", right=True),
            Column("retry", cut=True),
            Column("timeout"),
            Column("keep"),
            Column("keep failed"),
            Column("arguments", cut=True),
        ],
        (
            (
                task.name,
                flow_of(task) or task.kind,
                task.queue,
                task.priority,
                retry_text(task.retry),
                _timeout(task.timeout),
                keep_text(task.keep),
                keep_text(task.keep_failed),
                task.codec.describe(),
            )
            for task in found
        ),
        empty="the app has no tasks",
    )


def print_steps(flows: Sequence[tuple[Task[..., Any], FlowStep]]) -> None:
    table(
        [
            Column("chain or machine", cut=True),
            Column("step or state", cut=True),
            Column("begins"),
            Column("queue", cut=True),
            Column("priority", right=True),
            Column("runs in"),
            Column("retry", cut=True),
            Column("timeout"),
        ],
        (
            (
                task.name,
                step.name,
                "begins" if can_start_at(task, step) else "",
                step.queue or task.queue,
                priority_of(task, step),
                "transaction" if step.transaction else "process" if step.process else "",
                retry_text(step.retry),
                _timeout(step.timeout),
            )
            for task, step in flows
        ),
        empty="",
    )


def print_schedules(schedules: Sequence[NewSchedule]) -> None:
    table(
        [
            Column("schedule", cut=True),
            Column("task", cut=True),
            Column("when", cut=True),
            Column("next"),
            Column("queue", cut=True),
            Column("overlap"),
            Column("catchup"),
            Column("args", cut=True),
        ],
        (
            (
                schedule.name,
                schedule.task,
                timing_text(*from_timing(schedule.timing)),
                next_tick(schedule) or "never",
                schedule.queue,
                schedule.overlap,
                catchup_text(schedule.catchup),
                schedule.args,
            )
            for schedule in schedules
        ),
        empty="",
    )


def _timeout(timeout: float | None) -> str:
    return "none" if timeout is None else describe(timeout)
