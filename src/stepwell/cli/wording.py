"""Retry policies, job policies and schedules in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.cli.output import compact
from stepwell.values.duration import describe, seconds
from stepwell.values.policy import JobPolicy
from stepwell.values.retry import Backoff, Retry
from stepwell.values.setting_text import keep_text


def retry_text(retry: Retry) -> str:
    if retry.max_attempts == 1:
        return "1 attempt"
    backoff = _backoff(retry.backoff, seconds(retry.initial, "initial"), seconds(retry.cap, "cap"))
    return f"{retry.max_attempts} attempts, {backoff}"


def policy_text(stored: Mapping[str, Any], max_attempts: int | None) -> str:
    """A policy that a job was given by `using` or by its schedule; `max_attempts` is stored beside it."""
    try:
        policy = msgspec.convert(stored, JobPolicy)
    except msgspec.ValidationError:
        return compact(stored)  # of a newer version, say
    parts: list[str] = []
    if policy.retry is not None:
        attempts = "" if max_attempts is None else "1 attempt, " if max_attempts == 1 else f"{max_attempts} attempts, "
        parts.append(f"retry: {attempts}{_backoff(policy.retry.backoff, policy.retry.initial, policy.retry.cap)}")
    if policy.timeout is not None:
        parts.append(f"timeout {describe(policy.timeout)}")
    if policy.keep is not None:
        parts.append(f"keep {keep_text(policy.keep)}")
    if policy.keep_failed is not None:
        parts.append(f"keep failed {keep_text(policy.keep_failed)}")
    return "; ".join(parts)


def timing_text(cron: str | None, tz: str | None, every: float | None) -> str:
    return f"{cron} {tz}" if every is None else f"every {describe(every)}"


def catchup_text(catchup: int) -> str:
    return {0: "skip", 1: "once"}.get(catchup, f"up to {catchup}")


def _backoff(backoff: Backoff, initial: float, cap: float) -> str:
    if callable(backoff):
        return f"delays by {getattr(backoff, '__qualname__', repr(backoff))}"
    if backoff == "fixed":
        return f"every {describe(min(initial, cap))}"
    return f"{backoff} from {describe(initial)} to {describe(cap)}"
