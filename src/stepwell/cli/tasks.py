"""`stepwell tasks`: list what an app would run, its steps, states and schedules. Needs no database.

`stepwell tasks show` is in `task_settings`.
"""

from __future__ import annotations

import json as json_text
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from typer.core import TyperGroup

from stepwell.calendar.schedule import NewSchedule, following, from_timing
from stepwell.cli import task_settings
from stepwell.cli.load_app import load_app
from stepwell.cli.options import AppArgument, JsonOption
from stepwell.cli.output import Column, dump, say, table
from stepwell.cli.wording import catchup_text, retry_text, timing_text
from stepwell.flows.chain import Chain
from stepwell.flows.flow import FlowStep
from stepwell.flows.machine import Machine
from stepwell.jobs.task import Task
from stepwell.values.duration import describe
from stepwell.values.setting_text import keep_text


class _TasksGroup(TyperGroup):
    """`stepwell tasks MODULE:APP` is short for `stepwell tasks list MODULE:APP`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not {"list", "show", "--help", "-h"}.intersection(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(cls=_TasksGroup, help="List an app's tasks, or show the settings of one.", rich_markup_mode=None)
group.command("show")(task_settings.show)


@group.command("list")
def tasks(app: AppArgument, json: JsonOption = False) -> None:
    """List an app's tasks, steps, states and schedules.

    The steps are those of its chains, the states those of its machines. Needs no database.
    """
    loaded = load_app(app)
    found = sorted(loaded.tasks.values(), key=lambda task: task.name)
    declared = [declaration.schedule() for declaration in loaded.scheduler.declared]
    schedules = sorted(declared, key=lambda schedule: schedule.name)
    if json:
        dump([_record(task, schedules) for task in found])
        return
    print_tasks(found)
    if steps := [(task, step) for task in found for step in steps_of(task)]:
        say("")
        print_steps(steps)
    if schedules:
        say("")
        print_schedules(schedules)


def _record(task: Task[..., Any], schedules: Sequence[NewSchedule]) -> dict[str, Any]:
    return {
        "name": task.name,
        "alias_of": task.alias_of,
        "retired": task.retired,
        "kind": task.kind,
        "flow": flow_of(task),
        "transaction": task.transaction,
        "queue": task.queue,
        "priority": task.priority,
        "max_attempts": task.retry.max_attempts,
        "retry": retry_text(task.retry),
        "timeout": task.timeout,
        "keep": "forever" if task.keep == math.inf else task.keep,
        "keep_failed": "forever" if task.keep_failed == math.inf else task.keep_failed,
        "arguments": task.codec.describe(),
        "batch": task.batch,
        "batch_wait": None if task.batch is None else task.batch_wait,
        "steps": [_step_record(task, step) for step in steps_of(task)],
        "schedules": [_schedule_record(schedule) for schedule in schedules if schedule.task == task.name],
    }


def _step_record(task: Task[..., Any], step: FlowStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "begins": can_start_at(task, step),
        "queue": step.queue or task.queue,
        "priority": priority_of(task, step),
        "transaction": step.transaction is not False,
        "process": step.process,
        "max_attempts": step.retry.max_attempts,
        "retry": retry_text(step.retry),
        "timeout": step.timeout,
    }


def _schedule_record(schedule: NewSchedule) -> dict[str, Any]:
    cron, tz, every = from_timing(schedule.timing)
    return {
        "name": schedule.name,
        "cron": cron,
        "tz": tz,
        "every": every,
        "next_run_at": next_tick(schedule),
        "args": json_text.loads(schedule.args),
        "queue": schedule.queue,
        "priority": schedule.priority,
        "overlap": schedule.overlap,
        "catchup": schedule.catchup,
        "jitter": schedule.jitter,
        "metadata": _loaded(schedule.metadata),
        "max_attempts": schedule.max_attempts,
        "policy": _loaded(schedule.policy),
    }


def _loaded(text: str | None) -> Any:
    return None if text is None else json_text.loads(text)


def next_tick(schedule: NewSchedule) -> datetime | None:
    return next(iter(following(schedule.timing, datetime.now(UTC), 1)), None)


def flow_of(task: Task[..., Any]) -> str | None:
    return "chain" if isinstance(task, Chain) else "machine" if isinstance(task, Machine) else None


def steps_of(task: Task[..., Any]) -> list[FlowStep]:
    if isinstance(task, Chain):
        return task.steps
    return list(task.states.values()) if isinstance(task, Machine) else []


def can_start_at(task: Task[..., Any], step: FlowStep) -> bool:
    return step.name in task.starts if isinstance(task, Machine) else step is steps_of(task)[0]


def priority_of(task: Task[..., Any], step: FlowStep) -> int:
    return task.priority if step.priority is None else step.priority


def print_tasks(found: Sequence[Task[..., Any]]) -> None:
    table(
        found,
        [
            Column("task", lambda task: task.name, cut=True),
            Column("kind", _kind),
            Column("queue", lambda task: task.queue, cut=True),
            Column("priority", lambda task: task.priority, right=True),
            Column("retry", lambda task: retry_text(task.retry), cut=True),
            Column("timeout", lambda task: _timeout(task.timeout)),
            Column("keep", lambda task: keep_text(task.keep)),
            Column("keep failed", lambda task: keep_text(task.keep_failed)),
            *([Column("batch", _batch)] if any(task.batch is not None for task in found) else []),
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
            Column(
                "runs in",
                lambda flow: (
                    "transaction" if flow[1].transaction is not False else "process" if flow[1].process else ""
                ),
            ),
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


def _kind(task: Task[..., Any]) -> str:
    if task.retired:
        return "retired"
    return f"now {task.alias_of}" if task.alias_of else flow_of(task) or task.kind


def _batch(task: Task[..., Any]) -> str:
    return "" if task.batch is None else f"{task.batch} in {describe(task.batch_wait)}"


def _timeout(timeout: float | None) -> str:
    return "none" if timeout is None else describe(timeout)
