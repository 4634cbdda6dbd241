"""The rule of a unique key, as a task or an enqueue declares it. `admission` makes the key of a job from it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_choice
from stepwell.values.duration import Duration, seconds
from stepwell.values.public_call import public_value

OnConflict: TypeAlias = Literal["ignore", "raise", "replace", "reschedule", "throttle"]
"""What an enqueue does if its unique key is taken: see `Unique`."""
Scope: TypeAlias = Literal["task", "queue", "database"]
"""Among which jobs a unique key is unique."""

_CONFLICTS: tuple[OnConflict, ...] = ("ignore", "raise", "replace", "reschedule", "throttle")
_SCOPES: tuple[Scope, ...] = ("task", "queue", "database")


@public_value(
    ttl='period="24h"',
    expires='period="24h"',
    expire='period="24h"',
    timeout='period="24h"',
    keys='the template first, such as Unique("{user}")',
    by='the template first, such as Unique("{user}")',
    args="Unique(True), for all arguments",
)
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
            if self.on_conflict != "reschedule":
                raise ConfigError(
                    f"Unique(max_wait) is {self.max_wait!r}, but only on_conflict='reschedule' delays a job again: add "
                    "that, or leave it out"
                )
        if self.on_conflict == "throttle" and self.period is None:
            raise ConfigError('on_conflict="throttle" needs Unique(key, period=...): for how long the first job wins')
        if self.until == "start" and self.period is not None:
            raise ConfigError('Unique(until="start") and Unique(period=...) exclude each other: give one')


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
