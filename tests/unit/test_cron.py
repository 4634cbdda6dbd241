"""Cron text and intervals as values: what is read, what is refused, which ticks there are. For clocks that turn, see
test_cron_clocks.py."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import ConfigError
from stepwell.calendar.timing import EPOCH, Cron, Interval, Timing, parse_timing, ticks

from .newest_tick import latest

_MICROSECOND = timedelta.resolution


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 3 * * *", ["2026-01-01 03:30", "2026-01-02 03:30"]),
        ("*/20 * * * *", ["2026-01-01 00:20", "2026-01-01 00:40", "2026-01-01 01:00"]),
        ("*/20 * * * * *", ["2026-01-01 00:00:20", "2026-01-01 00:00:40", "2026-01-01 00:01:00"]),
        ("15 30 6 * * *", ["2026-01-01 06:30:15", "2026-01-02 06:30:15"]),
        ("0 9-17/4 * * MON-FRI", ["2026-01-01 09:00", "2026-01-01 13:00", "2026-01-01 17:00", "2026-01-02 09:00"]),
        ("0 0 1 jan,Jul *", ["2026-07-01 00:00", "2027-01-01 00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("0 0 * * sun", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        # Either day will do, unless one of the two fields begins with a star, also with a step.
        ("0 0 13 * FRI", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00"]),
        ("0 0 13 * 0-6", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("0 0 */2 * FRI", ["2026-01-09 00:00", "2026-01-23 00:00", "2026-02-13 00:00"]),
        ("0 0 13 * */5", ["2026-02-13 00:00", "2026-03-13 00:00", "2026-09-13 00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00", "2026-02-28 00:00", "2026-03-31 00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        ("0 0 * * MON#2", ["2026-01-12 00:00", "2026-02-09 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 * 2 MON#5", ["2044-02-29 00:00", "2072-02-29 00:00", "2112-02-29 00:00"]),
        ("@hourly", ["2026-01-01 01:00", "2026-01-01 02:00"]),
        ("@daily", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@midnight", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("@monthly", ["2026-02-01 00:00", "2026-03-01 00:00"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        ("@Annually", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ],
)
def test_cron_text_is_read_as_in_a_crontab(text: str, expected: list[str]) -> None:
    assert _first(Cron(text), _at("2026-01-01"), len(expected)) == [_at(each) for each in expected]


def test_the_hour_is_that_of_the_zone_and_the_tick_is_in_utc() -> None:
    tick = Cron("30 3 * * *", "Asia/Kathmandu").after(_at("2026-01-01"))
    assert tick == _at("2026-01-01 21:45")
    assert tick
    assert tick.tzinfo is UTC


def test_the_text_is_kept_as_it_was_written_but_for_spare_blanks() -> None:
    assert Cron("  0  9 *\t* Mon-fri ") == Cron("0 9 * * Mon-fri", "UTC")
    assert Cron(" @Daily ", "Europe/Paris").text == "@Daily"
    assert hash(Cron("0 9 * * *")) == hash(Cron("0 9 * * *"))


def test_a_tick_is_after_the_time_asked_for_never_at_it() -> None:
    cron = Cron("0 9 * * *")
    nine = _at("2026-05-01 09:00")
    assert cron.after(nine - _MICROSECOND) == nine
    assert cron.after(nine) == nine + timedelta(days=1)
    assert cron.after(nine + _MICROSECOND) == nine + timedelta(days=1)


def test_a_time_in_any_zone_may_be_asked_for_but_one_without_a_zone_may_not() -> None:
    cron, interval = Cron("0 9 * * *", "Europe/Paris"), Interval(60)
    for zone in (ZoneInfo("Europe/Paris"), ZoneInfo("Asia/Tokyo"), timezone(timedelta(hours=-5))):
        assert cron.after(_at("2026-05-01 06:59").astimezone(zone)) == _at("2026-05-01 07:00")
        assert interval.after(_at("2026-05-01 06:59").astimezone(zone)) == _at("2026-05-01 07:00")
    for timing in (cron, interval):
        with pytest.raises(TypeError, match="no time zone"):
            timing.after(datetime(2026, 5, 1))  # noqa: DTZ001
        with pytest.raises(TypeError, match="no time zone"):
            ticks(timing, EPOCH, datetime(2026, 5, 1), 1)  # noqa: DTZ001


def test_at_the_end_of_the_calendar_there_are_no_more_ticks() -> None:
    end = datetime.max.replace(tzinfo=UTC) - timedelta(hours=1)
    for timing in (Cron("0 0 * * *"), Cron("0 0 1 6 *", "Asia/Tokyo"), parse_timing("30d")):
        assert timing.after(end) is None
        assert latest(timing, end, end + timedelta(minutes=1)) is None
    start = datetime.min.replace(tzinfo=UTC)
    assert ticks(Cron("0 0 1 6 *"), start, _at("0003-01-01"), 10) == [_at("0001-06-01"), _at("0002-06-01")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("61 * * * *", "schedule is '61 * * * *': minute is '61', it must be 0 to 59, or a list"),
        ("* 24 * * *", "hour is '24', it must be 0 to 23"),
        ("* * 0 * *", "day of month is '0', it must be 1 to 31, L for the last day"),
        ("* * 32 * *", "day of month is '32'"),
        ("* * * 13 *", "month is '13', it must be 1 to 12, JAN to DEC"),
        ("* * * JANUARY *", "month is 'JANUARY'"),
        ("* * * * 8", "day of week is '8', it must be 0 to 7 (0 and 7 are Sunday), SUN to SAT"),
        ("* * * * monday", "day of week is 'monday'"),
        ("60 * * * * *", "second is '60', it must be 0 to 59"),
        ("0 60 * * * *", "minute is '60'"),
        ("5,61,7 * * * *", "minute is '5,61,7' with '61', it must be"),
        ("5, * * * *", "minute is '5,' with ''"),
        ("0 22-2 * * *", "hour is '22-2', it must be 0 to 23, or a list '1,5', an upward range '1-5'"),
        ("* * * * SAT-SUN", "day of week is 'SAT-SUN', it must be 0 to 7"),
        ("*/0 * * * *", "minute is '*/0'"),
        ("*/-1 * * * *", "minute is '*/-1'"),
        ("*/90 * * * *", "minute is '*/90', its step must be 1 to 59"),
        ("0 0 1-10/40 * *", "day of month is '1-10/40', its step must be 1 to 31"),
        ("0 9-9/2 * * *", "hour is '9-9/2', a step needs a wider range than '9-9'"),
        ("1.5 * * * *", "minute is '1.5'"),
        ("? * * * *", "minute is '?'"),
        ("* * 15W * *", "day of month is '15W'"),
        ("* * * * MON#6", "day of week is 'MON#6'"),
        ("* * * * FRIL", "day of week is 'FRIL'"),
        ("* * * L *", "month is 'L'"),
        ("", "schedule is '': cron has 5 fields (minute, hour,"),
        ("   ", "this has 0"),
        ("* * * *", "this has 4"),
        ("* * * * * * *", "this has 7"),
        ("90", "this has 1; an interval is written as '90s'"),
        ("0 0 30 2 *", "schedule is '0 0 30 2 *': no such day ever comes, change the day of month, the"),
        ("0 0 31 4,6,9,11 *", "no such day ever comes"),
        ("* * */20 * 1L", "no such day ever comes"),
        ("@reboot", "enqueue the job at start"),
        ("@fortnightly", "schedule is '@fortnightly': it must be one of @hourly, @daily"),
        ("@every 5m", "it must be one of @hourly"),
        ("0 0 * * *\n", r"'\n' is not allowed in cron text"),
        ("0 0 * * *\n0 1 * * *", r"'\n' is not allowed in cron text"),
        ("0 0 * * *\0", r"'\x00' is not allowed in cron text"),
        ("0 0 * * \u017fun", "'\u017f' is not allowed in cron text"),
        ("٣ * * * *", "'٣' is not allowed in cron text"),
        ("0,1" + ",1" * 200 + " * * * *", ",'...: it has 411 characters, 200 is the most"),
        ("9" * 100_000, "9'...: it has 100000 characters, 200 is the most"),
        (None, "schedule is a NoneType: give cron text such as"),
        (b"* * * * *", "schedule is a bytes"),
        (5, "schedule is a int"),
    ],
)
def test_what_is_no_cron_text_is_refused_by_field(text: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Cron(text)
    assert complaint in str(refused.value)
    if isinstance(text, str):
        with pytest.raises(ConfigError, match="schedule is"):
            parse_timing(text)


@pytest.mark.slow
@given(st.text(st.sampled_from("0123456789*/,-#LW@ \tJANMONsun\n\0é"), max_size=40) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        timing = parse_timing(text)
    except ConfigError as refusal:
        assert str(refusal).startswith("schedule is ")  # noqa: PT017
    else:
        tick = timing.after(_at("2026-01-01"))
        assert tick
        assert tick > _at("2026-01-01")


@pytest.mark.parametrize(
    ("tz", "complaint"),
    [
        ("Europe/Atlantis", "tz is 'Europe/Atlantis': there is no such time zone"),
        ("europe/paris", "did you mean 'Europe/Paris'?"),
        ("Europe/Pariss", "did you mean 'Europe/Paris'?"),
        ("utc", "did you mean 'UTC'?"),
        ("CEST", "there is no such time zone"),
        ("+02:00", "there is no such time zone, write a name such as 'Europe/Paris' or 'UTC'"),
        ("", "there is no such time zone"),
        ("Europe", "there is no such time zone"),
        ("localtime", "there is no such time zone"),
        ("posix/Europe/Paris", "there is no such time zone"),
        ("right/Europe/Paris", "there is no such time zone"),
        ("../etc/passwd", "there is no such time zone"),
        ("Europe/../Europe/Paris", "there is no such time zone"),
        ("/etc/localtime", "there is no such time zone"),
        ("/usr/share/zoneinfo/Europe/Paris", "there is no such time zone"),
        ("Europe/Paris\0", "there is no such time zone"),
        ("Europe/Paris ", "did you mean 'Europe/Paris'?"),
        ("\ud800", "there is no such time zone"),
        ("x" * 100_000, "tz is '" + "x" * 40 + "': there is no such time zone"),
        (None, "tz is a NoneType"),
        (ZoneInfo("Europe/Paris"), "tz is a ZoneInfo: give the name of a time zone"),
    ],
)
def test_what_is_no_time_zone_is_refused(tz: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Cron("0 9 * * *", tz)
    assert complaint in str(refused.value)


def test_without_any_time_zones_on_the_machine_utc_still_works() -> None:
    program = """
import sys; sys.modules["tzdata"] = None
from datetime import UTC, datetime
from stepwell.calendar.timing import Cron
print(Cron("0 9 * * *").after(datetime(2026, 1, 1, tzinfo=UTC)))
try: Cron("0 9 * * *", "Europe/Paris")
except Exception as error: print(error)
"""
    bare = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert bare.stdout.splitlines() == [
        "2026-01-01 09:00:00+00:00",
        "tz is 'Europe/Paris': this machine has no time zones, install the package 'tzdata'",
    ]


@pytest.mark.parametrize(
    ("given", "timing"),
    [
        ("90s", Interval(90)),
        (" 1h 30m ", Interval(5400)),
        ("100ms", Interval(0.1)),
        ("1.5d", Interval(129_600)),
        (15, Interval(15)),
        (0.25, Interval(0.25)),
        (timedelta(minutes=5, microseconds=3), Interval(300.000003)),
        ("0 9 * * *", Cron("0 9 * * *", "UTC")),
        ("*/10 * * * * *", Cron("*/10 * * * * *", "UTC")),
        ("@daily", Cron("@daily", "UTC")),
    ],
)
def test_a_length_of_time_is_an_interval_and_other_text_is_cron(given: Any, timing: Timing) -> None:
    assert parse_timing(given) == timing


def test_a_zone_goes_with_cron_only() -> None:
    assert parse_timing("0 9 * * *", "Europe/Paris") == Cron("0 9 * * *", "Europe/Paris")
    for interval in ("90s", 90, timedelta(seconds=90)):
        with pytest.raises(ConfigError, match="tz is for cron"):
            parse_timing(interval, "Europe/Paris")


@pytest.mark.parametrize(
    "given",
    [
        0,
        "0s",
        timedelta(0),
        -1,
        timedelta(days=-1),
        math.nan,
        math.inf,
        -math.inf,
        0.0999,
        "99ms",
        "1us",
        timedelta.resolution,
        "5300w",
        "36526d",
        4e9,
        10**400,
        timedelta.max,
        "9" * 150 + "d",
    ],
)
def test_an_interval_that_is_too_short_too_long_or_no_number_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"schedule is .*: an interval must be between 100ms and 100 years"):
        parse_timing(given)


@pytest.mark.parametrize("given", [None, True, b"90s", [], datetime(2026, 1, 1, tzinfo=UTC)])
def test_what_is_neither_interval_nor_cron_is_refused_by_type(given: Any) -> None:
    with pytest.raises(ConfigError, match=f"schedule is a {type(given).__name__}: give cron text .* or an interval"):
        parse_timing(given)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, 0.01])
def test_an_interval_made_by_hand_is_checked_too(seconds: float) -> None:
    with pytest.raises(ConfigError, match="an interval must be"):
        Interval(seconds)


_times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
_intervals = st.builds(
    Interval,
    st.integers(100_000, 10**13).map(lambda microseconds: microseconds / 1e6) | st.floats(0.1, 1e7),
    st.just(EPOCH) | _times,
)


@given(_intervals, _times)
def test_every_tick_of_an_interval_is_the_anchor_and_a_whole_number_of_steps(interval: Interval, at: datetime) -> None:
    step = round(interval.seconds * 1_000_000)
    expected = at
    for _ in range(20):
        before, expected = expected, interval.after(expected)
        assert expected
        assert (expected - interval.anchor) // _MICROSECOND % step == 0
        assert before < expected
        assert expected - before == step * _MICROSECOND or (before == at and expected - before < step * _MICROSECOND)


def test_ten_thousand_tenths_of_a_second_are_a_thousand_seconds() -> None:
    interval, tick = Interval(0.1), EPOCH
    for _ in range(10_000):
        tick = interval.after(tick) or EPOCH
    assert tick == EPOCH + timedelta(seconds=1000)


def test_an_interval_does_not_shift_with_the_time_it_is_asked_at() -> None:
    interval = parse_timing("15m")
    assert interval.after(_at("2026-05-01 09:07:31")) == _at("2026-05-01 09:15")
    assert Interval(900, _at("2026-01-01 00:05")).after(_at("2026-05-01 09:07:31")) == _at("2026-05-01 09:20")
    assert Interval(900, _at("2026-01-01 00:05")).after(_at("2025-05-01 09:07:31")) == _at("2025-05-01 09:20")


_timings = st.sampled_from(
    [
        Cron("* * * * *", "Europe/Paris"),
        Cron("30 * * * *", "Australia/Lord_Howe"),
        Cron("15,45 1-3 * * *", "America/New_York"),
        Cron("0 2 * * *", "Africa/Casablanca"),
        Cron("0 0 LW * *", "Africa/Cairo"),
        Cron("0 0 1 */3 *"),
        parse_timing("20m"),
        parse_timing("33h"),
    ]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(_timings, _times, st.timedeltas(timedelta(0), timedelta(days=2)), st.integers(-1, 200))
def test_ticks_are_what_asking_for_one_after_the_other_finds(
    timing: Timing, after: datetime, length: timedelta, most: int
) -> None:
    until = after + length
    naive: list[datetime] = []
    tick = timing.after(after)
    while tick and tick <= until:
        naive.append(tick)
        tick = timing.after(tick)
    assert ticks(timing, after, until, most) == (naive[-most:] if most > 0 else [])
    assert latest(timing, after, until) == (naive[-1] if naive else None)


def test_the_end_belongs_to_the_ticks_and_the_start_does_not() -> None:
    day = timedelta(days=1)
    for timing in (Cron("0 9 * * *"), Interval(86_400, _at("2026-01-01 09:00"))):
        nine = _at("2026-05-01 09:00")
        assert ticks(timing, nine, nine + 2 * day, 10) == [nine + day, nine + 2 * day]
        assert ticks(timing, nine, nine + 2 * day - _MICROSECOND, 10) == [nine + day]
        assert ticks(timing, nine - _MICROSECOND, nine, 10) == [nine]
        assert ticks(timing, nine, nine, 10) == []
        assert ticks(timing, nine + day, nine, 10) == []


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["* * * * * *", "* * * 1 1 *", "* * 3 1 1 *", "100ms"])
def test_the_newest_ticks_of_ten_years_are_found_without_walking_them(text: str) -> None:
    timing = parse_timing(text)
    found = ticks(timing, _at("2016-03-01"), _at("2026-03-01"), 500)
    assert len(found) == 500
    assert found == sorted(set(found))
    newest = {"100ms": "2026-03-01 00:00", "* * * * * *": "2026-03-01 00:00", "* * 3 1 1 *": "2026-01-01 03:59:59"}
    assert found[-1] == latest(timing, _at("2016-03-01"), _at("2026-03-01"))
    assert found[-1] == _at(newest.get(text, "2026-01-01 23:59:59"))


def _first(timing: Timing, at: datetime, count: int) -> list[datetime | None]:
    found: list[datetime | None] = []
    tick: datetime | None = at
    while tick and len(found) < count:
        tick = timing.after(tick)
        found.append(tick)
    return found
