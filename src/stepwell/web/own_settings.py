"""The settings that a job has of its own, which its task does not have: to show them, and to give them to a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from stepwell.errors import StepwellError
from stepwell.jobs.task import Task
from stepwell.values.duration import describe
from stepwell.values.policy import JobPolicy, StoredKeep, read_policy
from stepwell.values.retry import Retry
from stepwell.web.visit import Refused


@dataclass(frozen=True, slots=True)
class OwnSettings:
    job: str
    options: dict[str, Any]
    """As `task.using` takes them."""
    text: str


def own_settings(job: dict[str, Any], task: Task[..., Any]) -> OwnSettings | None:
    """The settings of a job that `reads.jobs.job` has read; None: it has none of its own."""
    try:
        policy = read_policy(job["policy"]) if job["policy"] else JobPolicy()
        options = _options(policy, job["max_attempts"], task)
    except (ValueError, StepwellError) as error:
        raise Refused(409, f"the settings of job {job['id']} cannot be read: {error}") from None
    return OwnSettings(str(job["id"]), options, _text(policy, job["max_attempts"])) if options else None


def _options(policy: JobPolicy, max_attempts: int | None, task: Task[..., Any]) -> dict[str, Any]:
    retry = None
    if policy.retry is not None:
        attempts = max_attempts or task.retry.max_attempts
        retry = Retry(max_attempts=attempts, **msgspec.structs.asdict(policy.retry))
    given = {
        "max_attempts": max_attempts,
        "retry": retry,
        "timeout": policy.timeout,
        "keep": _keep(policy.keep),
        "keep_failed": _keep(policy.keep_failed),
    }
    return {name: value for name, value in given.items() if value is not None}


def _keep(stored: StoredKeep | None) -> Any:
    return "forever" if stored == "Infinity" else stored


def _text(policy: JobPolicy, max_attempts: int | None) -> str:
    parts = [] if max_attempts is None else [f"at most {max_attempts:,} attempts"]
    if policy.retry is not None:
        parts.append(f"retried after {describe(policy.retry.initial)}, {policy.retry.backoff}")
    if policy.timeout is not None:
        parts.append(f"timeout {describe(policy.timeout)}")
    for name, kept in (("", policy.keep), (" after a failure", policy.keep_failed)):
        if kept is not None:
            parts.append(f"kept for {describe(float(kept))}{name}" if kept != "Infinity" else f"kept forever{name}")
    return ", ".join(parts)
