"""How many jobs may start in a time."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from stepwell.errors import ConfigError
from stepwell.values.bounds import check_flag, check_whole
from stepwell.values.duration import HUNDRED_YEARS, Duration, describe, seconds
from stepwell.values.public_call import public_value

# In seconds.
_SHORTEST_PER = 1e-6
_SHORTEST_INTERVAL = 1e-9
# The largest lateness, as a share of the spacing: two jobs are at least the remaining quarter apart.
_MOST_LATE = 0.75


@public_value(
    most="the number first, such as Rate(50)",
    limit="the number first, such as Rate(50)",
    rate="the number first, such as Rate(50)",
    max="the number first, such as Rate(50)",
    period='per="1s"',
    interval='per="1s"',
    seconds='per="1s"',
)
@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` jobs with this key start per `per`, over all workers. `key` is as in `Limit`.

    It is a token bucket: up to `burst` jobs, by default `count`, may start at once after a pause. With `smooth`, they
    start one at a time, evenly spaced, and never more than `count` in any time as long as `per`. A start that comes
    late may be followed by the next one sooner, but not by less than a quarter of the spacing.
    """

    count: int
    _: KW_ONLY
    per: Duration = "1s"
    burst: int | None = None
    key: str | None = None
    smooth: bool = False

    def __post_init__(self) -> None:
        check_whole(self.count, "Rate(count)", 1, 1_000_000)
        check_flag(self.smooth, "Rate(smooth)")
        # The same bounds as stepwell.is_admission and stepwell.check_rate have.
        per = seconds(self.per, "Rate(per)")
        if per == 0:
            raise ConfigError("Rate(per) is 0: give a duration, such as '1s'")
        if per < _SHORTEST_PER or per / self.count < _SHORTEST_INTERVAL:
            raise ConfigError(
                f"Rate({self.count}, per={self.per!r}) is too fast: give a duration of at least 1us, and fewer "
                "than a billion jobs a second"
            )
        if self.burst is not None:
            check_whole(self.burst, "Rate(burst)", 1, 1_000_000)
            if self.smooth and self.burst > 1:
                raise ConfigError("Rate(smooth=True) starts one job at a time, so it has no burst: leave one out")
            if per / self.count * self.burst > HUNDRED_YEARS:
                raise ConfigError(
                    f"Rate(burst) is {self.burst}, which would take more than {describe(HUNDRED_YEARS)} to fill up: "
                    "give a smaller one"
                )

    @property
    def bucket(self) -> tuple[float, int, float]:
        """The seconds until the next token, how many tokens the bucket holds, and its slack: which part of a further
        one.

        Workers claim a job some milliseconds after its token is there. A smooth rate would lose these at each job. So
        its bucket holds a part of a second token: the next job may start by as much sooner. For that, the tokens are
        further apart, so that a window of `per` that begins with a late job has no more than `count`.
        """
        per = seconds(self.per, "Rate(per)")
        if not self.smooth:
            return per / self.count, self.burst or self.count, 0.0
        late_by = lateness(self.count, per)
        spacing = (per + late_by) / self.count
        return spacing, 1, late_by / spacing


def lateness(count: int, per: float) -> float:
    """By how many seconds a claim of a smooth rate may be late and the next one still be on time.
    `stepwell.lateness` in SQL is the same."""
    # One job per window: whatever the next one made up for would be too soon.
    return 0.0 if count == 1 else min(_MOST_LATE * per / count, per / 40, 0.1)
