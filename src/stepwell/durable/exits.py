"""Exceptions that leave a handler without being errors. They derive from `BaseException`, so `except Exception` lets
them through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stepwell.values.step import NewStep


class Suspend(BaseException):
    """Suspends the job until all steps of one of `groups` have ended. `steps` are saved with the suspension."""

    def __init__(
        self, groups: Iterable[list[str]] = (), steps: Iterable[NewStep] = (), *, at_once: bool = False
    ) -> None:
        super().__init__("the job is suspended: let this through, it is not an error")
        self.groups = list(groups)
        self.steps = list(steps)
        self.at_once = at_once

    @classmethod
    def all(cls, suspends: Iterable[Suspend]) -> Suspend:
        """One suspension for several branches: the job resumes when any of them can."""
        every = list(suspends)
        return cls(
            _disjoint([group for one in every for group in one.groups]),
            [step for one in every for step in one.steps],
            at_once=any(one.at_once for one in every),
        )


class _Wait(msgspec.Struct):
    steps: list[dict[str, Any]]
    groups: list[list[str]]
    at_once: bool


def wait_text(suspend: Suspend, steps: Sequence[NewStep]) -> str:
    """The waits of a suspension, and the steps to save with it, as JSON: the argument of stepwell.suspend and
    stepwell.save_waits."""
    return msgspec.json.encode(_Wait([_as_json(step) for step in steps], suspend.groups, suspend.at_once)).decode()


def _as_json(step: NewStep) -> dict[str, Any]:
    fields = {name: value for name, value in msgspec.structs.asdict(step).items() if value is not None}
    return fields if step.value is None else {**fields, "value": msgspec.Raw(step.value)}


class Lost(BaseException):
    """Ends a run that no longer holds its job: nothing that it writes counts."""

    def __init__(self) -> None:
        super().__init__("this run no longer holds its job: the job was given to another run, or has ended")


class StopReplay(BaseException):
    """Ends a replay that only collects compensations: it has found them all."""


def _disjoint(groups: list[list[str]]) -> list[list[str]]:
    """Equivalent groups that share no step: the database stores one group per step."""
    shared = {key for key, count in Counter(key for group in groups for key in set(group)).items() if count > 1}
    disjoint = [group for group in groups if shared.isdisjoint(group)]
    sets = list(dict.fromkeys(frozenset(group) for group in groups if not shared.isdisjoint(group)))
    # A superset of another group cannot be complete before that group is.
    least = [group for group in sets if not any(other < group for other in sets)]
    counts = Counter(key for group in least for key in group)
    disjoint += [sorted(group) for group in least if all(counts[key] == 1 for key in group)]
    # Of the rest it is unknown which is complete first, so any of their steps wakes the job.
    disjoint += [
        [key] for key in sorted({key for group in least if any(counts[key] > 1 for key in group) for key in group})
    ]
    return disjoint
