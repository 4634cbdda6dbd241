"""Which jobs may be enqueued, and when they may run: unique keys, limits by key, rates and fairness.

A task declares them as templates over its arguments. Each job gets its keys when it is enqueued, as an `Admission` that
is stored with it. The database decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_choice, check_whole
from stepwell.values.duration import Duration, seconds
from stepwell.values.template import check_template, fill, short

OnConflict: TypeAlias = Literal["ignore", "raise", "replace", "reschedule", "throttle"]
"""What an enqueue does if its unique key is taken: see `Unique`."""
Scope: TypeAlias = Literal["task", "queue", "database"]
"""Among which jobs a unique key is unique."""

_CONFLICTS: tuple[OnConflict, ...] = ("ignore", "raise", "replace", "reschedule", "throttle")
_SCOPES: tuple[Scope, ...] = ("task", "queue", "database")
# Every limit and rate of a job is checked under one lock, so a job has few.
_MOST_KEYS = 8


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job per key. `key` is a template over the arguments, or True for all of them.

    The key is taken while the job is live, or with `until="start"` until the job first runs, so that one may run while
    another waits. With `period` it stays taken for that long after the enqueue, even if the job has ended: the
    idempotency key of a request. `scope` widens a key from the task to its queue or to the whole database.

    `on_conflict` says what an enqueue does if the key is taken. "ignore" returns a handle to the existing job. "raise"
    raises `JobExists`. "replace" gives a job that has not started the new arguments and options. "reschedule" also
    delays it again, by the delay of the new enqueue, but not beyond `max_wait` after the first enqueue (debounce).
    "throttle" ignores all but the first for the `period`, whether its job is live or not.
    """

    key: str | Literal[True]
    _: KW_ONLY
    until: Literal["end", "start"] = "end"
    period: Duration | None = None
    scope: Scope = "task"
    on_conflict: OnConflict = "ignore"
    max_wait: Duration | None = None

    def __post_init__(self) -> None:
        check_choice(self.until, "Unique(until)", ("end", "start"))
        check_choice(self.scope, "Unique(scope)", _SCOPES)
        check_choice(self.on_conflict, "on_conflict", _CONFLICTS)
        if self.period is not None and seconds(self.period, "Unique(period)") == 0:
            raise ConfigError("Unique(period) is 0: give some seconds, or leave it out")
        if self.max_wait is not None:
            seconds(self.max_wait, "Unique(max_wait)")
        if self.on_conflict == "throttle" and self.period is None:
            raise ConfigError('on_conflict="throttle" needs Unique(key, period=...): for how long the first job wins')
        if self.until == "start" and self.period is not None:
            raise ConfigError('Unique(until="start") and Unique(period=...) exclude each other: give one')


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` jobs with this key run at once, over all workers. `key` is a template over the arguments; tasks
    with the same key share the limit. Without a key, the limit is for all jobs of the task.

    The jobs of a key run in their order: by priority, then first in, first out. A job that is retried, snoozed or
    suspended gives its place to the next one and queues again, unless `hold` keeps the place for it.
    """

    most: int
    _: KW_ONLY
    key: str | None = None
    hold: bool = False

    def __post_init__(self) -> None:
        check_whole(self.most, "Limit(most)", 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` jobs with this key start per `per`, over all workers. `key` is as in `Limit`.

    It is a token bucket: up to `burst` jobs, by default `count`, may start at once after a pause. With `smooth`, they
    start evenly spaced.
    """

    count: int
    _: KW_ONLY
    per: Duration = "1s"
    burst: int | None = None
    key: str | None = None
    smooth: bool = False

    def __post_init__(self) -> None:
        check_whole(self.count, "Rate(count)", 1, 1_000_000)
        if seconds(self.per, "Rate(per)") == 0:
            raise ConfigError("Rate(per) is 0: give a duration, such as '1s'")
        if self.burst is not None:
            check_whole(self.burst, "Rate(burst)", 1, 1_000_000)
            if self.smooth and self.burst > 1:
                raise ConfigError("Rate(smooth=True) starts one job at a time, so it has no burst: leave one out")


@dataclass(frozen=True, slots=True)
class Fair:
    """Keys take turns within a queue and priority. `key` is a template over the arguments. A key with a weight of 2 in
    `weights` has two turns where others have one."""

    key: str
    _: KW_ONLY
    weights: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        for key, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.01 <= weight <= 100:
                raise ConfigError(f"Fair(weights) has {weight!r} for {key!r}: a weight is a number from 0.01 to 100")


class StoredUnique(msgspec.Struct, frozen=True, omit_defaults=True):
    """The unique key of one job."""

    key: str
    conflict: OnConflict = "ignore"
    until_start: bool = False
    period: float | None = None
    max_wait: float | None = None


class StoredLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A limit that one job is under."""

    key: str
    most: int
    hold: bool = False


class StoredRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rate that one job is under: a token every `interval` seconds, up to `burst` of them."""

    key: str
    interval: float
    burst: int


class StoredFair(msgspec.Struct, frozen=True, omit_defaults=True):
    """The key by which one job takes turns."""

    key: str
    weight: float = 1.0


class Admission(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of one job, as stored with it."""

    unique: StoredUnique | None = None
    limits: tuple[StoredLimit, ...] = ()
    rates: tuple[StoredRate, ...] = ()
    fair: StoredFair | None = None


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """The rules of one task, checked against the names of its arguments."""

    task: str
    unique: Unique | None = None
    limits: tuple[Limit, ...] = ()
    rates: tuple[Rate, ...] = ()
    fair: Fair | None = None

    def __bool__(self) -> bool:
        return bool(self.unique or self.limits or self.rates or self.fair)

    def check(self, arguments: Sequence[str]) -> None:
        """Raises `ConfigError` if a template does not fit the arguments of the task."""
        if self.unique is not None and self.unique.key is not True:
            check_template(self.unique.key, arguments, self._what("unique"), constant=False)
        for what, rules in (("limit", self.limits), ("rate", self.rates)):
            for rule in rules:
                if rule.key is not None:
                    check_template(rule.key, arguments, self._what(what), constant=True)
        if self.fair is not None:
            check_template(self.fair.key, arguments, self._what("fair"), constant=False)
        if len({limit.hold for limit in self.limits}) > 1:
            raise ConfigError(
                f"task {self.task!r} has a limit with hold=True and one without: a job that holds one place while it "
                "waits for another could wait for ever, so give all of them hold=True, or none"
            )
        if len(self.limits) + len(self.rates) > _MOST_KEYS:
            raise ConfigError(f"task {self.task!r} has more than {_MOST_KEYS} limits and rates")

    def of(self, arguments: Mapping[str, Any], args: str, queue: str) -> Admission:
        """Return the keys of a job with these arguments, which are `args` as JSON."""
        return Admission(
            None if self.unique is None else self._unique(self.unique, arguments, args, queue),
            tuple(StoredLimit(self._key(rule, arguments, "limit"), rule.most, rule.hold) for rule in self.limits),
            tuple(
                StoredRate(
                    self._key(rule, arguments, "rate"),
                    seconds(rule.per, "Rate(per)") / rule.count,
                    1 if rule.smooth else rule.burst or rule.count,
                )
                for rule in self.rates
            ),
            None if self.fair is None else self._fair(self.fair, arguments),
        )

    def _what(self, rule: str) -> str:
        return f"task {self.task!r}: {rule}"

    def _key(self, rule: Limit | Rate, arguments: Mapping[str, Any], what: str) -> str:
        return self.task if rule.key is None else fill(rule.key, arguments, self._what(what))

    def _unique(self, unique: Unique, arguments: Mapping[str, Any], args: str, queue: str) -> StoredUnique:
        what = self._what("unique")
        key = short(args, what) if unique.key is True else fill(unique.key, arguments, what)
        return stored_unique(unique, key, self.task, queue)

    def _fair(self, fair: Fair, arguments: Mapping[str, Any]) -> StoredFair:
        key = fill(fair.key, arguments, self._what("fair"))
        return StoredFair(key, float(fair.weights.get(key, 1.0)))


def stored_unique(unique: Unique, key: str, task: str, queue: str) -> StoredUnique:
    """Return a unique key as it is stored. The scope is part of it."""
    place = {"task": task, "queue": queue, "database": ""}[unique.scope]
    return StoredUnique(
        short(msgspec.json.encode([unique.scope, place, key]).decode(), "the unique key"),
        unique.on_conflict,
        unique.until == "start",
        None if unique.period is None else seconds(unique.period, "Unique(period)"),
        None if unique.max_wait is None else seconds(unique.max_wait, "Unique(max_wait)"),
    )


def unique_of(unique: str | Unique | Literal[True] | None, on_conflict: OnConflict | None) -> Unique | None:
    """Return the rule that `unique=` and `on_conflict=` declare together."""
    if unique is None:
        if on_conflict is not None:
            raise ConfigError(f"on_conflict is {on_conflict!r}, but there is no unique= that could conflict")
        return None
    if isinstance(unique, Unique):
        if on_conflict is not None:
            raise ConfigError("on_conflict is given twice: give it as Unique(on_conflict=...) only")
        return unique
    if not isinstance(unique, str) and unique is not True:
        raise ConfigError(
            f'unique is {unique!r}: give a template such as "{{user}}", True for all arguments, or Unique'
        )
    return Unique(unique, on_conflict=on_conflict or "ignore")


def fair_of(fair: str | Fair | None) -> Fair | None:
    return Fair(fair) if isinstance(fair, str) else fair
