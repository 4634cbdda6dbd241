"""The settings of tasks in words, for the terminal and the dashboard."""

from __future__ import annotations

import json
import math
from typing import Any

from stepwell.values.duration import describe
from stepwell.values.policy import StoredKeep
from stepwell.values.setting import Setting


def text_of(setting: Setting) -> str:
    """The value of a setting in words."""
    value = setting.value
    if value is None:
        return "none"
    try:
        match setting.name:
            case "retry":
                return _retry(value)
            case "timeout" | "timeout_grace" | "batch_wait":
                return describe(value)
            case "keep" | "keep_failed":
                return "forever" if value == "forever" else keep_text(value)
            case "limit":
                hold = ", held while it waits" if value.get("hold") else ""
                return f"{value['most']} at once{_by(value)}{hold}"
            case "rate" | "queue_rate":
                burst = "smooth" if value.get("smooth") else f"up to {value['burst']} at once"
                return f"{rate_text(value['count'] / value['per'])}, {burst}{_by(value)}"
            case "queue_limit":
                return f"{value} at once in the queue"
            case "unique":
                key = "all arguments" if value["key"] is True else value["key"]
                return f"{key}, on conflict {value.get('on_conflict') or value.get('conflict') or 'ignore'}"
            case "fair":
                return f"{value['key']}{', weights ' + _json(value['weights']) if value['weights'] else ''}"
            case "paused":
                return "the queue is paused"
            case "logs":
                return "kept" if value else "not kept"
            case _:
                return str(value)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError):
        return _json(value)  # of a newer version, say


def keep_text(keep: StoredKeep) -> str:
    length = math.inf if keep == "Infinity" else keep
    return describe(length) if length else "not at all"


def rate_text(per_second: float) -> str:
    """Jobs per second, minute, hour or day: the first of these in which there is at least one."""
    for unit, length in (("s", 1), ("m", 60), ("h", 3600)):
        if per_second * length >= 0.9999:
            return f"{per_second * length:.4g}/{unit}"
    return f"{per_second * 86400:.4g}/d"


def _by(rule: dict[str, Any]) -> str:
    return "" if rule.get("key") is None else f" by key {rule['key']}"


def _retry(retry: dict[str, Any]) -> str:
    if retry["max_attempts"] == 1:
        return "1 attempt"
    initial, cap = describe(retry["initial"]), describe(retry["cap"])
    backoff = {
        "fixed": f"every {initial}",
        "linear": f"linear from {initial} to {cap}",
        "exponential": f"exponential from {initial} to {cap}",
    }.get(retry["backoff"], f"delays by {retry['backoff']}")
    return f"{retry['max_attempts']} attempts, {backoff}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
