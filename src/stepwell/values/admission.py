"""Which jobs may be enqueued, and when they may run: unique keys, limits by key, rates and fairness.

A task declares them as templates over its arguments. Each job gets its keys when it is enqueued, as an `Admission` that
is stored with it. The database decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any, TypeVar

import msgspec

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_flag, check_whole
from stepwell.values.duration import seconds
from stepwell.values.instant import may_hold_offsets, with_instants
from stepwell.values.json import encode_other, set_defaults
from stepwell.values.public_call import public_value
from stepwell.values.rate import Rate
from stepwell.values.template import LONGEST, check_template, fill, filled, short
from stepwell.values.unique import OnConflict, Unique

# Every limit and rate of a job is checked under one lock, so a job has few.
_MOST_KEYS = 8
_sorting = msgspec.json.Encoder(enc_hook=encode_other, order="sorted")


@public_value(
    count="the number first, such as Limit(2)",
    limit="the number first, such as Limit(2)",
    max="the number first, such as Limit(2)",
    concurrency="the number first, such as Limit(2)",
    max_concurrency="the number first, such as Limit(2)",
    per='a Rate, such as rate=Rate(50, per="1s")',
)
@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` jobs with this key run at once, over all workers. `key` is a template over the arguments; tasks
    with the same key share the limit. Without a key, the limit is for all jobs of the task.

    The jobs of a key run in their order: by priority, then first in, first out. A job that is retried, snoozed or
    suspended gives its permit to the next one and queues again, unless `hold` keeps it.
    """

    most: int
    _: KW_ONLY
    key: str | None = None
    hold: bool = False

    def __post_init__(self) -> None:
        check_whole(self.most, "Limit(most)", 1, 1_000_000)
        check_flag(self.hold, "Limit(hold)")


@public_value(
    by='the template first, such as Fair("{tenant}")',
    weight='weights={"gold": 2}',
)
@dataclass(frozen=True, slots=True)
class Fair:
    """Keys take turns within a queue and priority. `key` is a template over the arguments. A key with a weight of 2 in
    `weights` has two turns where others have one."""

    key: str
    _: KW_ONLY
    weights: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping):
            raise ConfigError(f'Fair(weights) is {self.weights!r}: give a weight by key, such as {{"gold": 2}}')
        for key, weight in self.weights.items():
            if not isinstance(key, str):
                raise ConfigError(f"Fair(weights) has the key {key!r}: a key is text, so write {str(key)!r}")
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.01 <= weight <= 100:
                raise ConfigError(f"Fair(weights) has {weight!r} for {key!r}: a weight is a number from 0.01 to 100")


class StoredUnique(msgspec.Struct, frozen=True, omit_defaults=True):
    """The unique key of one job."""

    key: str
    on_conflict: OnConflict = msgspec.field(default="ignore", name="conflict")
    until_start: bool = False
    period: float | None = None
    max_wait: float | None = None

    @property
    def is_of_task(self) -> bool:
        """Whether only jobs of the same task can have this key."""
        return self.key.startswith('["task",')


class StoredLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A limit that one job is under."""

    key: str
    most: int
    hold: bool = False


class StoredRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rate that one job is under: a token every `spacing` seconds, up to `burst` of them, and the part `slack` of a
    further one."""

    key: str
    # Jobs that are stored have these by their first names.
    spacing: float = msgspec.field(name="interval")
    burst: int
    slack: float = msgspec.field(default=0.0, name="late")


StoredRule = TypeVar("StoredRule", StoredLimit, StoredRate)


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

    @property
    def is_plain_key(self) -> bool:
        """Whether it is nothing but a unique key, and that nothing but a key."""
        unique = self.unique
        if unique is None or self.limits or self.rates or self.fair is not None:
            return False
        # Not a property of its own: every enqueue with a unique key comes here.
        return (
            unique.on_conflict == "ignore"
            and not unique.until_start
            and unique.period is None
            and unique.max_wait is None
        )


class AdmissionRules(msgspec.Struct, frozen=True):
    """The rules of one task, checked against the names of its arguments."""

    task: str
    unique: Unique | None = None
    limits: tuple[Limit, ...] = ()
    rates: tuple[Rate, ...] = ()
    fair: Fair | None = None
    first_name: str | None = None
    """The name that the task had first, if it was renamed: see `lasting_name`."""
    limits_of_app: int = 0
    """How many of the limits, the last ones, are those of the app."""

    def __bool__(self) -> bool:
        return bool(self.unique or self.limits or self.rates or self.fair)

    @property
    def lasting_name(self) -> str:
        """The name that the keys of the task belong to. It outlives a rename: while old and new code run side by side,
        both must take the same keys."""
        return self.task if self.first_name is None else self.first_name

    def check(self, arguments: Sequence[str]) -> None:
        """Raises `ConfigError` if a template does not fit the arguments of the task."""
        if self.unique is not None and self.unique.key is not True:
            check_template(self.unique.key, arguments, _what(self.task, "unique"), constant=False, control=True)
        for what, rules in (("limit", self.limits), ("rate", self.rates)):
            for rule in rules:
                if rule.key is not None:
                    check_template(rule.key, arguments, _what(self.task, what), constant=True)
        if self.fair is not None:
            check_template(self.fair.key, arguments, _what(self.task, "fair"), constant=False)
        if len({limit.hold for limit in self.limits}) > 1:
            raise ConfigError(
                f"task {self.task!r} has a limit with hold=True and one without: a job that keeps one permit while it "
                "waits for another could wait for ever, so give all of them hold=True, or none"
            )
        for what, rules in (("limit", self.limits), ("rate", self.rates)):
            keys = [self.lasting_name if rule.key is None else rule.key for rule in rules]
            for key in keys:
                if keys.count(key) > 1:
                    raise ConfigError(
                        f"task {self.task!r} has two {what}s with the key {key!r}: a key has one {what}, so give each "
                        "a key of its own"
                    )
        if len(self.limits) + len(self.rates) > _MOST_KEYS:
            raise ConfigError(f"task {self.task!r} has more than {_MOST_KEYS} limits and rates")

    def of(self, arguments: Mapping[str, Any], queue: str) -> Admission:
        """Return the keys of a job with these arguments."""
        unique = None if self.unique is None else self._unique(self.unique, arguments, queue)
        if not (self.limits or self.rates or self.fair):
            return Admission(unique)
        return Admission(
            unique,
            _by_key(
                [StoredLimit(self._key(rule, arguments, "limit"), rule.most, rule.hold) for rule in self.limits], _lower
            ),
            _by_key([StoredRate(self._key(rule, arguments, "rate"), *rule.bucket) for rule in self.rates], _slower),
            None if self.fair is None else self._fair(self.fair, arguments),
        )

    def _key(self, rule: Limit | Rate, arguments: Mapping[str, Any], what: str) -> str:
        return self.lasting_name if rule.key is None else fill(rule.key, arguments, _what(self.task, what))

    def _unique(self, unique: Unique, arguments: Mapping[str, Any], queue: str) -> StoredUnique:
        what = _what(self.task, "unique")
        key = _canonical(arguments) if unique.key is True else filled(unique.key, arguments, what)
        return stored_unique(unique, key, self.lasting_name, queue)

    def _fair(self, fair: Fair, arguments: Mapping[str, Any]) -> StoredFair:
        key = fill(fair.key, arguments, _what(self.task, "fair"))
        return StoredFair(key, float(fair.weights.get(key, 1.0)))


def _by_key(
    rules: list[StoredRule], stricter: Callable[[StoredRule, StoredRule], StoredRule]
) -> tuple[StoredRule, ...]:
    """The rules of a job, with one for each key. Templates that differ may be filled in to the same key."""
    if len(rules) < 2:
        return tuple(rules)
    found: dict[str, StoredRule] = {}
    for rule in rules:
        found[rule.key] = stricter(found[rule.key], rule) if rule.key in found else rule
    return tuple(found.values())


def _lower(one: StoredLimit, other: StoredLimit) -> StoredLimit:
    return one if one.most <= other.most else other


def _slower(one: StoredRate, other: StoredRate) -> StoredRate:
    """A rate that exceeds neither of these. A key has one bucket."""
    slow, fast = (one, other) if one.spacing >= other.spacing else (other, one)
    return msgspec.structs.replace(slow, burst=min(slow.burst, fast.burst), slack=min(slow.slack, fast.slack))


@cache
def _what(task: str, rule: str) -> str:
    """Name a rule for an error. It is asked for with every job, so it is written once."""
    return f"task {task!r}: {rule}"


def stored_unique(unique: Unique, key: str, task: str, queue: str) -> StoredUnique:
    """Return a unique key as it is stored, with its scope. `stepwell.unique_text` in SQL writes the same."""
    within = task if unique.scope == "task" else queue if unique.scope == "queue" else ""
    text = msgspec.json.encode((unique.scope, within, key)).decode()
    return StoredUnique(
        text if len(text) <= LONGEST else short(text, "the unique key"),
        unique.on_conflict,
        unique.until == "start",
        None if unique.period is None else seconds(unique.period, "Unique(period)"),
        None if unique.max_wait is None else seconds(unique.max_wait, "Unique(max_wait)"),
    )


def _canonical(arguments: Mapping[str, Any]) -> str:
    """All arguments as one text: whatever the order of their names, sets and dicts, and the zone of their times, and
    whether a field that has its default was given.
    Arguments that JSON writes in different ways are different, even if they are equal in Python, such as 1 and True."""
    plain: Any = dict(arguments)
    set_defaults(plain)
    try:
        text = _sorting.encode(plain).decode()
    except TypeError:
        # A dict whose keys are not text is not sorted before they are.
        plain = msgspec.to_builtins(plain, str_keys=True, order="sorted", enc_hook=encode_other)
        text = _sorting.encode(plain).decode()
    if may_hold_offsets(text):
        with suppress(TypeError):  # times that are the keys of a dict stay as they are
            text = _sorting.encode(with_instants(dict(arguments), encode_other)).decode()
    return text


def fair_of(fair: str | Fair | None) -> Fair | None:
    if fair is None or isinstance(fair, Fair):
        return fair
    if not isinstance(fair, str):
        raise ConfigError(f'fair is {fair!r}: give a template such as "{{tenant}}", or Fair')
    return Fair(fair)
