"""`stepwell tasks`: list what an app would run."""

from __future__ import annotations

import json as json_text
import math
from collections.abc import Sequence
from typing import Any

from stepwell.calendar.schedule import NewSchedule, from_timing
from stepwell.cli.load_app import load_app
from stepwell.cli.options import AppArgument, JsonOption
from stepwell.cli.output import dump, say
from stepwell.cli.tasks.details import can_start_at, flow_of, next_tick, priority_of, schedules_of, steps_of
from stepwell.cli.tasks.tables import print_schedules, print_steps, print_tasks
from stepwell.cli.wording import retry_text
from stepwell.flows.flow import FlowStep
from stepwell.jobs.task import Task


def tasks(app: AppArgument, json: JsonOption = False) -> None:
    """List an app's tasks, steps, states and schedules.

    The steps are those of its chains, the states those of its machines. Needs no database.
    """
    loaded = load_app(app)
    found = sorted(loaded.tasks.values(), key=lambda task: task.name)
    schedules = sorted(schedules_of(loaded), key=lambda schedule: schedule.name)
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
        "steps": [_step_record(task, step) for step in steps_of(task)],
        "schedules": [_schedule_record(schedule) for schedule in schedules if schedule.task == task.name],
    }


def _step_record(task: Task[..., Any], step: FlowStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "begins": can_start_at(task, step),
        "queue": step.queue or task.queue,
        "priority": priority_of(task, step),
        "transaction": step.transaction,
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
    }
