"""Plain values and pure functions: durations, retry policies, outcomes."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from stepwell import ConfigError, Retry
from stepwell.values.duration import describe, seconds


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("50ms", 0.05),
        ("10s", 10),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (" 2 d ", 172800),
        ("1w", 604800),
        ("7us", 7e-6),
        (3, 3),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
        (0, 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(value: Any, length: float) -> None:
    assert seconds(value, "x") == pytest.approx(length)


@pytest.mark.parametrize(
    "value", ["", "5", "5 parsecs", "s", "1h-30m", "1,5h", -1, "-1s", math.nan, math.inf, None, [], True]
)
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigError, match="the thing"):
        seconds(value, "the thing")


def test_durations_read_well() -> None:
    assert [describe(n) for n in (0, 0.00005, 0.05, 1, 90, 5400, 86400, math.inf)] == [
        "0s",
        "50us",
        "50ms",
        "1s",
        "1.5m",
        "1.5h",
        "1d",
        "forever",
    ]


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(backoff="fixed", initial=2, jitter=0), [2, 2, 2]),
        (Retry(backoff="linear", initial=2, jitter=0), [2, 4, 6]),
        (Retry(backoff="exponential", initial=2, jitter=0), [2, 4, 8]),
        (Retry(backoff="exponential", initial=2, factor=3, cap=10, jitter=0), [2, 6, 10]),
        (Retry(backoff=lambda attempt, _: f"{attempt}m"), [60, 120, 180]),
    ],
)
def test_the_pause_grows_as_the_policy_says(policy: Retry, delays: list[float]) -> None:
    assert [policy.delay(attempt, ValueError()) for attempt in (1, 2, 3)] == delays


def test_jitter_stays_within_its_bounds_and_the_ten_thousandth_attempt_is_still_a_number() -> None:
    policy = Retry(initial=10, backoff="fixed", jitter=0.5)
    delays = [policy.delay(1, ValueError()) for _ in range(200)]
    assert 5 <= min(delays) < 7.5
    assert 12.5 < max(delays) <= 15
    assert Retry(jitter=0).delay(10_000, ValueError()) == 3600


def test_jitter_does_not_go_beyond_the_cap_nor_gather_there() -> None:
    for policy in (Retry(cap=10, jitter=0.5), Retry(backoff="fixed", initial=8, cap=10, jitter=0.5)):
        delays = [policy.delay(50, ValueError()) for _ in range(200)]
        assert max(delays) <= 10
        assert sum(delay == 10 for delay in delays) < 5
        assert min(delays) < 7


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": True},
        {"backoff": "quadratic"},
        {"jitter": 2},
        {"initial": "soon"},
        {"cap": -1},
        {"factor": 0.5},
        {"retry_on": "ValueError"},
        {"never_on": (int,)},
    ],
)
def test_a_senseless_policy_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Retry"):
        Retry(**options)


def test_a_policy_takes_one_type_or_several() -> None:
    policy = Retry(retry_on=OSError, never_on=[FileNotFoundError])  # pyright: ignore[reportArgumentType]
    assert [policy.allows(error) for error in (OSError(), FileNotFoundError(), ValueError())] == [True, False, False]
