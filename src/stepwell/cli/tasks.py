"""`stepwell tasks`: what an app would run."""

from __future__ import annotations

import math
from typing import Any

from stepwell.cli.load import load_app
from stepwell.cli.options import AppArgument, JsonOption
from stepwell.cli.output import Column, dump, table
from stepwell.duration import describe, seconds
from stepwell.task import Task


def tasks(app: AppArgument, json: JsonOption = False) -> None:
    """List the tasks of an app. Needs no database."""
    found = sorted(load_app(app).tasks.values(), key=lambda task: task.name)
    if json:
        dump([_record(task) for task in found])
        return
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
                task.kind,
                task.queue,
                task.priority,
                _retry(task),
                "none" if task.timeout is None else describe(task.timeout),
                _keep(task.keep),
                _keep(task.keep_failed),
                task.codec.describe(),
            )
            for task in found
        ),
        empty="the app has no tasks",
    )


def _record(task: Task[..., Any]) -> dict[str, Any]:
    return {
        "name": task.name,
        "kind": task.kind,
        "transaction": task.transaction,
        "queue": task.queue,
        "priority": task.priority,
        "max_attempts": task.retry.max_attempts,
        "retry": _retry(task),
        "timeout": task.timeout,
        "keep": "forever" if task.keep == math.inf else task.keep,
        "keep_failed": "forever" if task.keep_failed == math.inf else task.keep_failed,
        "arguments": task.codec.describe(),
    }


def _retry(task: Task[..., Any]) -> str:
    retry = task.retry
    if retry.max_attempts == 1:
        return "1 attempt"
    said = f"{retry.max_attempts} attempts, "
    if callable(retry.backoff):
        return said + f"pauses by {getattr(retry.backoff, '__qualname__', repr(retry.backoff))}"
    initial, cap = seconds(retry.initial, "initial"), seconds(retry.cap, "cap")
    if retry.backoff == "fixed":
        return said + f"every {describe(min(initial, cap))}"
    return said + f"{retry.backoff} from {describe(initial)} to {describe(cap)}"


def _keep(length: float) -> str:
    return describe(length) if length else "not at all"
