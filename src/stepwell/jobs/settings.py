"""The settings of a task as the code has them, each with its source, for people who look at them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from stepwell.jobs.task import Task
from stepwell.values.admission import Limit
from stepwell.values.duration import Duration, seconds
from stepwell.values.rate import Rate
from stepwell.values.retry import Retry
from stepwell.values.setting import Source


class CodeSetting(msgspec.Struct, frozen=True):
    """A setting as the code has it: `stepwell.task_settings` adds what the database decides."""

    value: Any
    source: Source


def settings_of(task: Task[..., Any]) -> dict[str, CodeSetting]:
    """Return the settings of a task by name. Rules that it does not have are left out."""
    rules = task.rules
    values: dict[str, Any] = {
        "queue": task.queue,
        "priority": task.priority,
        "retry": _retry(task.retry),
        "timeout": task.timeout,
        "timeout_grace": task.timeout_grace,
        "keep": _length(task.keep),
        "keep_failed": _length(task.keep_failed),
        "drift": task.drift,
        "logs": task.logs,
    }
    own: dict[str, Any] = {
        "unique": None if rules.unique is None else _plain(rules.unique, "period", "max_wait"),
        "limit": [
            _limit(limit, rules.first_name, of_app=n >= len(rules.limits) - rules.limits_of_app)
            for n, limit in enumerate(rules.limits)
        ]
        or None,
        "rate": [_rate(rate, rules.first_name) for rate in rules.rates] or None,
        "fair": None if rules.fair is None else _plain(rules.fair),
        "batch": task.batch,
        "batch_wait": None if task.batch is None else task.batch_wait,
        "maintainer": task.maintainer,
        "runbook": task.runbook,
    }
    return {
        **{name: CodeSetting(value, task.sources.get(name, "task")) for name, value in values.items()},
        **{name: CodeSetting(value, "task") for name, value in own.items() if value is not None},
    }


def _retry(retry: Retry) -> dict[str, Any]:
    backoff = retry.backoff
    return {
        "max_attempts": retry.max_attempts,
        "backoff": backoff if isinstance(backoff, str) else getattr(backoff, "__qualname__", repr(backoff)),
        "initial": seconds(retry.initial, "Retry(initial)"),
        "factor": retry.factor,
        "cap": seconds(retry.cap, "Retry(cap)"),
        "jitter": retry.jitter,
        "retry_on": [kind.__qualname__ for kind in retry.retry_on],
        "never_on": [kind.__qualname__ for kind in retry.never_on],
    }


def _limit(limit: Limit, first_name: str | None, *, of_app: bool) -> dict[str, Any]:
    shown = {"most": limit.most, "key": first_name if limit.key is None else limit.key, "hold": limit.hold}
    return shown | {"source": "app"} if of_app else shown


def _rate(rate: Rate, first_name: str | None) -> dict[str, Any]:
    burst = 1 if rate.smooth else rate.burst or rate.count
    key = first_name if rate.key is None else rate.key
    shown = {"count": rate.count, "per": seconds(rate.per, "Rate(per)"), "burst": burst, "key": key}
    return shown | {"smooth": True} if rate.smooth else shown


def _plain(rule: Any, *durations: str) -> dict[str, Any]:
    """The fields of a rule by name, of which these are durations."""
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    for name in durations:
        given: Duration | None = getattr(rule, name)
        fields[name] = None if given is None else seconds(given, name)
    return fields


def _length(length: float) -> float | str:
    return "forever" if length == math.inf else length
