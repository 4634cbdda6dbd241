"""A setting of a task or a job, and where its value comes from."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Source: TypeAlias = Literal["enqueue", "task", "queue", "app", "default", "run time"]
"""Where the value of a setting comes from. Of several that are given, the first of enqueue, task, queue and app counts;
if none is given, the default. "run time": a limit or rate of a key, set by `app.set_limit` or `app.set_rate`."""


class Setting(msgspec.Struct, frozen=True):
    """The value of a setting, as JSON can hold it: lengths of time in seconds, or "forever"."""

    name: str
    value: Any
    source: Source
