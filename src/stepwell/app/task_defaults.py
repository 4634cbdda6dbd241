"""The options that an app gives its tasks, and how the options of a task are read: its own, else the app's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

from stepwell.durable.backend import Drift
from stepwell.errors import ConfigError
from stepwell.values.admission import AdmissionRules, Fair, Limit, fair_of
from stepwell.values.bounds import check_choice, check_flag, check_label
from stepwell.values.duration import Duration, seconds
from stepwell.values.policy import Keep, check_keep, check_retry, check_timeout
from stepwell.values.rate import Rate
from stepwell.values.retry import Retry
from stepwell.values.setting import Source
from stepwell.values.template import check_template
from stepwell.values.unique import OnConflict, Unique, unique_of

Rule = TypeVar("Rule", Limit, Rate)

DRIFTS: tuple[Drift, ...] = ("warn", "fail", "rerun")
_TIMEOUT_GRACE = "5s"
_LONGEST_MAINTAINER = 200
_LONGEST_RUNBOOK = 2000


class TaskDefaults(msgspec.Struct, frozen=True):
    """The options that tasks of an app have unless they give their own."""

    queue: str
    retry: Retry
    timeout: float | None
    keep: float
    keep_failed: float
    drift: Drift
    logs: bool
    given: frozenset[str]
    """The options that the app was given. The others are defaults of Stepwell."""
    limits: tuple[Limit, ...] = ()
    """Limits that every task has beside its own."""

    def options(
        self,
        queue: str | None = None,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        timeout_grace: Duration = "5s",
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        drift: Drift | None = None,
        unique: str | Literal[True] | Unique | None = None,
        on_conflict: OnConflict | None = None,
        limit: Limit | None = None,
        limits: Sequence[Limit] = (),
        rate: Rate | None = None,
        rates: Sequence[Rate] = (),
        fair: str | Fair | None = None,
        logs: bool | None = None,
        maintainer: str | None = None,
        runbook: str | None = None,
        *,
        task: str,
        was: Sequence[str] = (),
        batch: bool = False,
    ) -> dict[str, Any]:
        """Return the arguments of `Task`, of which `task` is the name and `was` are the names that it had before, for
        the options that a user has given."""
        given = {
            "queue": queue is not None,
            "priority": priority != 0,
            "retry": retry is not None,
            "timeout": timeout is not None,
            "timeout_grace": timeout_grace != _TIMEOUT_GRACE,
            "keep": keep is not None,
            "keep_failed": keep_failed is not None,
            "drift": drift is not None,
            "logs": logs is not None,
        }
        if batch and logs:
            raise ConfigError(f"task {task!r}: batch= and logs= exclude each other: a call is for several jobs")
        return {
            "queue": self.queue if queue is None else queue,
            "priority": priority,
            "retry": check_retry(retry) or self.retry,
            "timeout": self.timeout if timeout is None else check_timeout(timeout),
            "timeout_grace": seconds(timeout_grace, "timeout_grace"),
            "keep": self.keep if keep is None else check_keep(keep, "keep"),
            "keep_failed": self.keep_failed if keep_failed is None else check_keep(keep_failed, "keep_failed"),
            "drift": self.drift if drift is None else check_choice(drift, "drift", DRIFTS),
            "rules": AdmissionRules(
                task,
                unique_of(unique, on_conflict),
                (*_rules(Limit, "limit", limit, limits), *self.limits),
                _rules(Rate, "rate", rate, rates),
                fair_of(fair),
                was[0] if was else None,
                len(self.limits),
            ),
            "logs": False if batch else check_flag(self.logs if logs is None else logs, "logs"),
            "maintainer": check_label(maintainer, "maintainer", _LONGEST_MAINTAINER),
            "runbook": check_label(runbook, "runbook", _LONGEST_RUNBOOK),
            "was": was,
            "sources": {name: "task" if own else self._source(name) for name, own in given.items()},
        }

    def _source(self, name: str) -> Source:
        return "app" if name in self.given else "default"


def check_app_limits(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return the limits of an app. Raises `ConfigError` for one that could not be shared by all its tasks."""
    checked = _rules(Limit, "limit", None, limits)
    for limit in checked:
        if limit.key is None:
            raise ConfigError(
                f"App(limits) has {limit!r}, without a key: name what all tasks share, such as key='shop'"
            )
        if limit.hold:
            raise ConfigError(
                f"App(limits) has {limit!r}: with hold=True a job that waits for another would keep that one from "
                "running; give hold=True to the limit of a task"
            )
        check_template(limit.key, (), "App(limits)", constant=True)
    return checked


def _rules(kind: type[Rule], name: str, one: Rule | None, several: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules that `limit=` and `limits=` give together, or `rate=` and `rates=`."""
    if isinstance(several, kind):
        raise ConfigError(f"{name}s is one {kind.__name__}: write {name}={several!r}, or give a list")
    if not isinstance(several, Sequence):
        raise ConfigError(f"{name}s is {several!r}: give a list of {kind.__name__}s")
    given = (*(() if one is None else (one,)), *several)
    for rule in given:
        if not isinstance(rule, kind):
            raise ConfigError(f"{name} is {rule!r}: give a {kind.__name__}, such as {kind.__name__}(5)")
    return given
