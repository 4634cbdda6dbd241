"""Cron where clocks turn: each turn of some zones by name, then any schedule at any time against the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stepwell import ConfigError
from stepwell.calendar.timing import Cron, ticks

from . import cron_oracle as oracle
from .newest_tick import latest

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Turn:
    tz: str
    at: datetime
    shows: datetime
    jumps_to: datetime

    @property
    def width(self) -> timedelta:
        return abs(self.jumps_to - self.shows)

    @property
    def middle(self) -> datetime:
        """A wall time that is skipped, or comes twice."""
        return min(self.jumps_to, self.shows) + self.width / 2

    def __str__(self) -> str:
        return f"{self.tz}-{self.at:%Y-%m-%d}"


def _turn(line: str) -> Turn:
    tz, *times = line.split("  ")
    at, shows, jumps_to = (datetime.fromisoformat(each) for each in times)
    return Turn(tz, at.replace(tzinfo=UTC), shows, jumps_to)


# Zone, the instant in UTC, what clocks were about to show, what they showed instead. Morocco's are listed as far as all
# editions of the time zone database agree on them.
_GAPS = [
    _turn(line)
    for line in """
America/New_York  2024-03-10 07:00  2024-03-10 02:00  2024-03-10 03:00
America/New_York  2025-03-09 07:00  2025-03-09 02:00  2025-03-09 03:00
America/New_York  2026-03-08 07:00  2026-03-08 02:00  2026-03-08 03:00
America/New_York  2027-03-14 07:00  2027-03-14 02:00  2027-03-14 03:00
Europe/Paris  2024-03-31 01:00  2024-03-31 02:00  2024-03-31 03:00
Europe/Paris  2025-03-30 01:00  2025-03-30 02:00  2025-03-30 03:00
Europe/Paris  2026-03-29 01:00  2026-03-29 02:00  2026-03-29 03:00
Europe/Paris  2027-03-28 01:00  2027-03-28 02:00  2027-03-28 03:00
Australia/Lord_Howe  2024-10-05 15:30  2024-10-06 02:00  2024-10-06 02:30
Australia/Lord_Howe  2025-10-04 15:30  2025-10-05 02:00  2025-10-05 02:30
Australia/Lord_Howe  2026-10-03 15:30  2026-10-04 02:00  2026-10-04 02:30
Australia/Lord_Howe  2027-10-02 15:30  2027-10-03 02:00  2027-10-03 02:30
Africa/Casablanca  2024-04-14 02:00  2024-04-14 02:00  2024-04-14 03:00
Africa/Casablanca  2025-04-06 02:00  2025-04-06 02:00  2025-04-06 03:00
Africa/Casablanca  2026-03-22 02:00  2026-03-22 02:00  2026-03-22 03:00
Africa/Cairo  2024-04-25 22:00  2024-04-26 00:00  2024-04-26 01:00
Africa/Cairo  2025-04-24 22:00  2025-04-25 00:00  2025-04-25 01:00
Africa/Cairo  2026-04-23 22:00  2026-04-24 00:00  2026-04-24 01:00
Africa/Cairo  2027-04-29 22:00  2027-04-30 00:00  2027-04-30 01:00
Asia/Beirut  2024-03-30 22:00  2024-03-31 00:00  2024-03-31 01:00
Asia/Beirut  2025-03-29 22:00  2025-03-30 00:00  2025-03-30 01:00
Asia/Beirut  2026-03-28 22:00  2026-03-29 00:00  2026-03-29 01:00
Asia/Beirut  2027-03-27 22:00  2027-03-28 00:00  2027-03-28 01:00
America/Sao_Paulo  2017-10-15 03:00  2017-10-15 00:00  2017-10-15 01:00
America/Sao_Paulo  2018-11-04 03:00  2018-11-04 00:00  2018-11-04 01:00
""".strip().splitlines()
]
_OVERLAPS = [
    _turn(line)
    for line in """
America/New_York  2024-11-03 06:00  2024-11-03 02:00  2024-11-03 01:00
America/New_York  2025-11-02 06:00  2025-11-02 02:00  2025-11-02 01:00
America/New_York  2026-11-01 06:00  2026-11-01 02:00  2026-11-01 01:00
America/New_York  2027-11-07 06:00  2027-11-07 02:00  2027-11-07 01:00
Europe/Paris  2024-10-27 01:00  2024-10-27 03:00  2024-10-27 02:00
Europe/Paris  2025-10-26 01:00  2025-10-26 03:00  2025-10-26 02:00
Europe/Paris  2026-10-25 01:00  2026-10-25 03:00  2026-10-25 02:00
Europe/Paris  2027-10-31 01:00  2027-10-31 03:00  2027-10-31 02:00
Australia/Lord_Howe  2024-04-06 15:00  2024-04-07 02:00  2024-04-07 01:30
Australia/Lord_Howe  2025-04-05 15:00  2025-04-06 02:00  2025-04-06 01:30
Australia/Lord_Howe  2026-04-04 15:00  2026-04-05 02:00  2026-04-05 01:30
Australia/Lord_Howe  2027-04-03 15:00  2027-04-04 02:00  2027-04-04 01:30
Africa/Casablanca  2024-03-10 02:00  2024-03-10 03:00  2024-03-10 02:00
Africa/Casablanca  2025-02-23 02:00  2025-02-23 03:00  2025-02-23 02:00
Africa/Casablanca  2026-02-15 02:00  2026-02-15 03:00  2026-02-15 02:00
Africa/Cairo  2024-10-31 21:00  2024-11-01 00:00  2024-10-31 23:00
Africa/Cairo  2025-10-30 21:00  2025-10-31 00:00  2025-10-30 23:00
Africa/Cairo  2026-10-29 21:00  2026-10-30 00:00  2026-10-29 23:00
Africa/Cairo  2027-10-28 21:00  2027-10-29 00:00  2027-10-28 23:00
Asia/Beirut  2024-10-26 21:00  2024-10-27 00:00  2024-10-26 23:00
Asia/Beirut  2025-10-25 21:00  2025-10-26 00:00  2025-10-25 23:00
Asia/Beirut  2026-10-24 21:00  2026-10-25 00:00  2026-10-24 23:00
Asia/Beirut  2027-10-30 21:00  2027-10-31 00:00  2027-10-30 23:00
America/Sao_Paulo  2018-02-18 02:00  2018-02-18 00:00  2018-02-17 23:00
America/Sao_Paulo  2019-02-17 02:00  2019-02-17 00:00  2019-02-16 23:00
""".strip().splitlines()
]
_at_each_gap = pytest.mark.parametrize("turn", _GAPS, ids=str)
_at_each_overlap = pytest.mark.parametrize("turn", _OVERLAPS, ids=str)
_at_each_turn = pytest.mark.parametrize("turn", _GAPS + _OVERLAPS, ids=str)


@_at_each_gap
def test_a_daily_time_that_is_skipped_runs_once_at_the_end_of_the_gap(turn: Turn) -> None:
    for text in (f"{turn.middle:%M %H} * * *", f"0 {turn.middle:%M %H} * * *", f"7 {turn.middle:%M %H} * * *"):
        cron = Cron(text, turn.tz)
        assert _walked(cron, turn.at - 12 * _HOUR, turn.at + 12 * _HOUR) == [turn.at]
        for before in (_HOUR, _MINUTE, _SECOND, timedelta.resolution):
            assert cron.after(turn.at - before) == turn.at
        next_day = _local(turn.tz, turn.middle + _DAY) + (7 * _SECOND if text.startswith("7") else timedelta(0))
        for later in (timedelta(0), timedelta.resolution, turn.width):
            assert cron.after(turn.at + later) == next_day


@_at_each_gap
def test_several_times_that_are_skipped_together_run_once(turn: Turn) -> None:
    hour, end = turn.middle.hour, turn.jumps_to
    for text in (f"1,10,29 {hour} * * *", f"1-29 {hour} * * *", f"0 1,29 {hour} * * *", f"* 1-29 {hour} * * *"):
        assert _walked(Cron(text, turn.tz), turn.at - _HOUR, turn.at + _HOUR) == [turn.at]
    # The end of the gap was due anyhow.
    cron = Cron(f"{turn.middle:%M},{end:%M} {hour},{end:%H} * * *", turn.tz)
    assert _walked(cron, turn.at - _SECOND, turn.at + _SECOND) == [turn.at]


@pytest.mark.parametrize("turn", [turn for turn in _GAPS if turn.width == _HOUR], ids=str)
def test_an_hour_that_is_skipped_whole_runs_once_also_with_a_star_in_the_minutes(turn: Turn) -> None:
    for text in (f"*/15 {turn.middle:%H} * * *", f"* * {turn.middle:%H} * * *"):
        assert _walked(Cron(text, turn.tz), turn.at - _HOUR, turn.at + _HOUR) == [turn.at]


@_at_each_gap
def test_the_minutes_beside_a_gap_run_as_ever(turn: Turn) -> None:
    before = turn.shows - _MINUTE
    assert _walked(Cron(f"{before:%M %H} * * *", turn.tz), turn.at - _HOUR, turn.at + _HOUR) == [turn.at - _MINUTE]
    end = turn.jumps_to
    assert _walked(Cron(f"{end:%M %H} * * *", turn.tz), turn.at - _HOUR, turn.at + _HOUR) == [turn.at]


@_at_each_overlap
def test_a_daily_time_that_comes_twice_runs_the_first_time(turn: Turn) -> None:
    first, second = turn.at - turn.width / 2, turn.at + turn.width / 2
    for text in (f"{turn.middle:%M %H} * * *", f"0 {turn.middle:%M %H} * * *"):
        cron = Cron(text, turn.tz)
        assert _walked(cron, turn.at - 12 * _HOUR, turn.at + 12 * _HOUR) == [first]
        next_day = _local(turn.tz, turn.middle + _DAY)
        between = [first, first + _SECOND, turn.at - _SECOND, turn.at, turn.at + _SECOND, second - _SECOND, second]
        for at in (*between, second + _SECOND, turn.at + turn.width):
            assert cron.after(at) == next_day
            assert latest(cron, turn.at - 12 * _HOUR, at) == first


@_at_each_overlap
def test_the_seconds_beside_an_overlap_run_as_ever(turn: Turn) -> None:
    last, end = turn.shows - _SECOND, turn.shows
    at_last, at_end = Cron(f"{last:%S %M %H} * * *", turn.tz), Cron(f"{end:%M %H} * * *", turn.tz)
    for at in (turn.at, turn.at + _SECOND, turn.at + turn.width - _SECOND):
        assert latest(at_last, turn.at - 12 * _HOUR, at) == turn.at - _SECOND
        assert at_end.after(at) == turn.at + turn.width
    assert _walked(at_last, turn.at - 12 * _HOUR, turn.at + 12 * _HOUR) == [turn.at - _SECOND]
    assert _walked(at_end, turn.at - 12 * _HOUR, turn.at + 12 * _HOUR) == [turn.at + turn.width]


@_at_each_overlap
def test_a_time_in_the_zone_itself_is_of_the_pass_that_its_fold_says(turn: Turn) -> None:
    cron = Cron(f"{turn.middle:%M} * * * *", turn.tz)
    first, second = (turn.middle.replace(tzinfo=ZoneInfo(turn.tz), fold=fold) for fold in (0, 1))
    assert cron.after(first) == turn.at + turn.width / 2
    assert latest(cron, turn.at - _HOUR, first) == turn.at - turn.width / 2
    assert latest(cron, turn.at - _HOUR, second) == turn.at + turn.width / 2
    assert ticks(cron, first, second, 9) == [turn.at + turn.width / 2]


@_at_each_overlap
def test_each_minute_of_a_certain_hour_runs_the_first_time(turn: Turn) -> None:
    start = turn.at - turn.width
    minutes = f"{turn.middle - turn.width / 2:%M}-59"
    expected = [start + n * _MINUTE for n in range(int(turn.width / _MINUTE))]
    for text in (f"{minutes} {turn.middle:%H} * * *", f"0 {minutes} {turn.middle:%H} * * *"):
        assert _walked(Cron(text, turn.tz), start - _SECOND, turn.at + 12 * _HOUR) == expected


@_at_each_overlap
def test_an_hourly_time_that_comes_twice_runs_both_times(turn: Turn) -> None:
    for hours in ("*", "*/1", "0-23", "0-11,12-23"):
        cron = Cron(f"{turn.middle:%M} {hours} * * *", turn.tz)
        found = _walked(cron, turn.at - turn.width, turn.at + turn.width)
        assert found == [turn.at - turn.width / 2, turn.at + turn.width / 2]
        for at in (turn.at - turn.width / 2, turn.at - _SECOND, turn.at, turn.at + _SECOND):
            assert cron.after(at) == turn.at + turn.width / 2


@pytest.mark.parametrize("turn", [turn for turn in _GAPS + _OVERLAPS if turn.width == _HOUR], ids=str)
def test_an_hourly_time_runs_every_hour_where_clocks_turn_by_an_hour(turn: Turn) -> None:
    for text in ("30 * * * *", "0 * * * *", "0 30 * * * *", "59 59 * * * *"):
        found = _walked(Cron(text, turn.tz), turn.at - 4 * _HOUR, turn.at + 4 * _HOUR)
        assert {later - earlier for earlier, later in pairwise(found)} == {_HOUR}


@_at_each_turn
def test_each_quarter_of_an_hour_runs_whatever_clocks_do(turn: Turn) -> None:
    for text in ("*/15 * * * *", "0 */15 * * * *", "0,15,30,45 * * * *"):
        expected = [turn.at + n * 15 * _MINUTE for n in range(-11, 13)]
        assert _walked(Cron(text, turn.tz), turn.at - 3 * _HOUR, turn.at + 3 * _HOUR) == expected


@_at_each_turn
def test_every_twenty_seconds_run_whatever_clocks_do(turn: Turn) -> None:
    expected = [turn.at + n * 20 * _SECOND for n in range(-14, 16)]
    assert _walked(Cron("*/20 * * * * *", turn.tz), turn.at - 5 * _MINUTE, turn.at + 5 * _MINUTE) == expected


@pytest.mark.parametrize(
    ("tz", "text", "after", "expected"),
    [
        # 02:00 is skipped, and every second hour is not every hour: it is made up for when the clock shows 03:00.
        (
            "Europe/Paris",
            "0 */2 * * *",
            "2026-03-28 22:30",
            ["2026-03-28 23:00", "2026-03-29 01:00", "2026-03-29 02:00"],
        ),
        # 02:00 comes twice, and counts once.
        (
            "Europe/Paris",
            "0 */2 * * *",
            "2026-10-24 23:00",
            ["2026-10-25 00:00", "2026-10-25 03:00"],
        ),
        # Half an hour is skipped from 02:00 on, or comes again from 01:30 on.
        ("Australia/Lord_Howe", "15 * * * *", "2026-10-03 14:00", ["2026-10-03 14:45", "2026-10-03 16:15"]),
        (
            "Australia/Lord_Howe",
            "45 * * * *",
            "2026-10-03 14:00",
            ["2026-10-03 14:15", "2026-10-03 15:15", "2026-10-03 15:45"],
        ),
        ("Australia/Lord_Howe", "10 */3 * * *", "2026-10-03 13:00", ["2026-10-03 13:40", "2026-10-03 16:10"]),
        (
            "Australia/Lord_Howe",
            "45 * * * *",
            "2026-04-04 14:00",
            ["2026-04-04 14:45", "2026-04-04 15:15", "2026-04-04 16:15"],
        ),
        ("Australia/Lord_Howe", "15 * * * *", "2026-04-04 14:00", ["2026-04-04 14:15", "2026-04-04 15:45"]),
        # The last hour of a day comes twice: the day is not over after the first.
        (
            "Africa/Cairo",
            "30 * 29 10 *",
            "2026-10-29 20:00",
            ["2026-10-29 20:30", "2026-10-29 21:30", "2027-10-28 22:30"],
        ),
        ("Africa/Cairo", "0 0 30 10 *", "2026-10-29 20:00", ["2026-10-29 22:00"]),
        # Midnight is skipped: the day begins at one.
        ("America/Sao_Paulo", "@daily", "2018-11-03 12:00", ["2018-11-04 03:00", "2018-11-05 02:00"]),
        ("Africa/Cairo", "0 0 * * FRI", "2026-04-23 12:00", ["2026-04-23 22:00", "2026-04-30 21:00"]),
        # There was no Friday, 30 December.
        ("Pacific/Apia", "0 5 * * *", "2011-12-29 14:00", ["2011-12-29 15:00", "2011-12-30 10:00", "2011-12-30 15:00"]),
        ("Pacific/Apia", "0 12 * * FRI", "2011-12-29 14:00", ["2011-12-30 10:00", "2012-01-05 22:00"]),
        ("Pacific/Apia", "0 12 30 12 *", "2011-12-29 14:00", ["2011-12-30 10:00", "2012-12-29 22:00"]),
        ("Pacific/Apia", "0 * * * FRI", "2011-12-29 14:00", ["2012-01-05 10:00", "2012-01-05 11:00"]),
        ("Pacific/Apia", "* * * * * *", "2011-12-30 09:59:58", ["2011-12-30 09:59:59", "2011-12-30 10:00:00"]),
        # One minute past midnight it was one minute past eleven of the day before.
        ("America/St_Johns", "30 23 * * *", "2009-11-01 00:00", ["2009-11-01 02:00", "2009-11-02 03:00"]),
        ("America/St_Johns", "0 0 * * *", "2009-11-01 00:00", ["2009-11-01 02:30", "2009-11-02 03:30"]),
        (
            "America/St_Johns",
            "0 * * * *",
            "2009-11-01 02:00",
            ["2009-11-01 02:30", "2009-11-01 03:30", "2009-11-01 04:30"],
        ),
    ],
)
def test_where_clocks_turn_in_odd_ways(tz: str, text: str, after: str, expected: list[str]) -> None:
    start, *due = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (after, *expected))
    assert _walked(Cron(text, tz), start, due[-1]) == due


_ZONES = ("America/New_York", "Europe/Paris", "Australia/Lord_Howe", "Africa/Casablanca")
_START, _END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
_TURNS = {tz: oracle.turns(tz, _START, _END) for tz in _ZONES}


@pytest.mark.slow
@pytest.mark.parametrize("tz", _ZONES)
@pytest.mark.parametrize("time", ["01:45", "02:15"])
def test_a_daily_schedule_runs_once_on_each_day_of_ten_years(tz: str, time: str) -> None:
    hour, minute = time.split(":")
    found = ticks(Cron(f"{minute} {hour} * * *", tz), _START + _DAY, _END - _DAY, 10_000)
    shown = [tick.astimezone(ZoneInfo(tz)) for tick in found]
    first = shown[0].date()
    assert [each.date() for each in shown] == [first + n * _DAY for n in range(len(found))]
    assert first <= date(2020, 1, 3)
    assert shown[-1].date() >= date(2029, 12, 30)
    elsewhere = {tick for tick, each in zip(found, shown, strict=True) if f"{each:%H:%M}" != time}
    assert elsewhere <= set(_TURNS[tz])
    assert all(each.fold == 0 for each in shown)


def _terms(lowest: int, highest: int, *more: str) -> st.SearchStrategy[str]:
    """A field: numbers, ranges and steps, alone or in a list."""
    number = st.integers(lowest, highest)
    span = st.lists(number, min_size=2, max_size=2, unique=True).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.integers(1, highest)
    one = st.one_of(
        number.map(str),
        span,
        st.tuples(span, step).map(lambda two: f"{two[0]}/{two[1]}"),
        step.map(lambda n: f"*/{n}"),
        st.tuples(number, step).map(lambda two: f"{two[0]}/{two[1]}"),
        st.sampled_from(["*", *more]),
    )
    return one | st.lists(one, min_size=2, max_size=3).map(",".join)


_minutes = st.sampled_from(["*", "*/15", "0", "30"]) | _terms(0, 59)
_hours = st.sampled_from(["*", "*/2", "0", "1", "2", "1-3"]) | _terms(0, 23)
_days = st.one_of(
    st.just("* * *"),
    st.tuples(
        st.just("*") | _terms(1, 31, "L", "LW"),
        st.just("*") | _terms(1, 12, "JAN", "mar-Oct"),
        st.just("*") | _terms(0, 7, "SUN", "mon-fri", "5L", "0L", "SUN#1", "3#2", "7#5"),
    ).map(" ".join),
)
_texts = st.tuples(_minutes, _hours, _days).map(" ".join)


@st.composite
def _moments(draw: st.DrawFn, within: timedelta) -> tuple[str, datetime]:
    """A zone, and a time there in ten years: any, or one near a turn."""
    tz = draw(st.sampled_from(_ZONES))
    if draw(st.booleans()):
        middle = draw(st.sampled_from(_TURNS[tz]))
        seconds = st.integers(int(-within / _SECOND), int(within / _SECOND))
        at = middle + draw(seconds) * _SECOND
    else:
        at = _START + draw(st.integers(0, (_END - _START) // _SECOND)) * _SECOND
    return tz, at + draw(st.sampled_from([0, 0, 1, 999_999])) * timedelta.resolution


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(_texts, _moments(26 * _HOUR), st.integers(0, 50))
@example("45 * * * *", ("Australia/Lord_Howe", datetime(2026, 4, 4, 14, 50, tzinfo=UTC)), 5)
@example("15,45 2 * * *", ("Europe/Paris", datetime(2026, 10, 25, 1, 15, tzinfo=UTC)), 5)
def test_any_schedule_runs_when_the_clock_on_the_wall_says_so(
    text: str, moment: tuple[str, datetime], hours: int
) -> None:
    tz, after = moment
    until = after + hours * _HOUR
    expected = oracle.due(text, tz, after, until, lead=2 * _HOUR)
    cron = _parsed(text, tz)
    assert _walked(cron, after, until) == expected
    assert latest(cron, after, until) == (expected[-1] if expected else None)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(["*", "*/7", "30", "59"]) | _terms(0, 59),
    _texts,
    _moments(70 * _MINUTE),
    st.integers(0, 20),
)
def test_any_schedule_with_seconds_runs_when_the_clock_on_the_wall_says_so(
    second: str, text: str, moment: tuple[str, datetime], minutes: int
) -> None:
    tz, after = moment
    until = after + minutes * _MINUTE
    expected = oracle.due(f"{second} {text}", tz, after, until, lead=65 * _MINUTE)
    assert _walked(_parsed(f"{second} {text}", tz), after, until) == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(_texts, _moments(26 * _HOUR))
def test_cronsim_agrees_where_it_is_right(text: str, moment: tuple[str, datetime]) -> None:
    tz, after = moment
    local = after.astimezone(ZoneInfo(tz))
    minute, hour, *_ = text.split()
    hourly = oracle.Rule(text).hourly
    # For cronsim a list that merely holds a star, or names each hour, is for certain hours; and one with a star in the
    # minutes alone is not.
    assume(hourly == (hour.startswith("*") or minute.startswith("*")))
    # From the second pass it answers with times already past; by half hours it loses ticks.
    assume(local.fold == 0)
    assume(not hourly or tz != "Australia/Lord_Howe")
    cron = _parsed(text, tz)  # first, for it passes over what never comes
    theirs = CronSim(text, local)
    for _ in range(30):
        expected = next(theirs).astimezone(UTC)
        assert cron.after(after) == expected
        after = expected


@settings(deadline=None, max_examples=40)
@given(_texts, _moments(3 * _HOUR))
def test_ticks_never_stand_still_or_go_back(text: str, moment: tuple[str, datetime]) -> None:
    tz, at = moment
    cron = _parsed(text, tz)
    for _ in range(10):
        tick = cron.after(at)
        assert tick
        assert tick > at
        # Whenever it is asked in between, the answer is the same; and it is the same from behind.
        assert cron.after(at + (tick - at) / 2) == tick
        assert cron.after(tick - timedelta.resolution) == tick
        assert latest(cron, at, tick) == tick
        assert latest(cron, at, tick - timedelta.resolution) is None
        at = tick


def _walked(cron: Cron, after: datetime, until: datetime) -> list[datetime]:
    """The ticks, forwards; and backwards they are the same."""
    found: list[datetime] = []
    tick = cron.after(after)
    while tick and tick <= until:
        found.append(tick)
        tick = cron.after(tick)
    assert ticks(cron, after, until, len(found) + 1) == found
    return found


def _local(tz: str, wall: datetime) -> datetime:
    return wall.replace(tzinfo=ZoneInfo(tz)).astimezone(UTC)


def _parsed(text: str, tz: str) -> Cron:
    try:
        return Cron(text, tz)
    except ConfigError as refused:
        assume("no such day ever comes" not in str(refused))
        raise
