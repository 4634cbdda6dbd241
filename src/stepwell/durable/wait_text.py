"""What a job waits for, as JSON: the argument of stepwell.suspend and stepwell.save_waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.durable.exits import Suspend
from stepwell.values.step import NewStep


class _Wait(msgspec.Struct):
    steps: list[dict[str, Any]]
    groups: list[list[str]]
    at_once: bool


def wait_text(suspend: Suspend, steps: Sequence[NewStep]) -> str:
    """The waits of a suspension, and the steps to save with it."""
    return msgspec.json.encode(_Wait([_as_json(step) for step in steps], suspend.groups, suspend.at_once)).decode()


def _as_json(step: NewStep) -> dict[str, Any]:
    fields = {name: value for name, value in msgspec.structs.asdict(step).items() if value is not None}
    return fields if step.value is None else {**fields, "value": msgspec.Raw(step.value)}
