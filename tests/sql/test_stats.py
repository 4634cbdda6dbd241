"""Counters by the minute: histograms and percentiles, enqueued jobs, and sums over longer times."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Sums
from stepwell.values.histogram import BINS, BOUNDS, bin_of

from . import calls
from .calls import Connection

RANGES = {"15m": 15, "1h": 60, "6h": 360, "1d": 1440, "7d": 10080}


def one(conn: Connection, query: str, *given: Any) -> Any:
    return calls.one(conn.execute(query.encode(), given))


def histogram(*seconds: float) -> list[int]:
    made = [0] * BINS
    for each in seconds:
        made[bin_of(each)] += 1
    return made


def counted(conn: Connection, minutes_ago: float, task: str = "t", queue: str = "q", **given: Any) -> None:
    """Counters as a worker wrote them so many minutes ago."""
    row: dict[str, Any] = {"waits": [], "runs": [], **given}
    named = ", ".join(row)
    conn.execute(
        f"insert into stepwell.stat (minute, task, queue, {named})"
        f" values (date_trunc('minute', stepwell.now() - %s * interval '1 minute'), %s, %s,"
        f" {', '.join(['%s'] * len(row))})".encode(),
        (minutes_ago, task, queue, *row.values()),
    )


def sum_all(conn: Connection) -> None:
    while one(conn, "select stepwell.sum_stats(1000)"):
        pass


def chart(conn: Connection, name: str = "1h") -> Any:
    return one(conn, "select stepwell.dashboard_overview(_range => %s)", name)["chart"]


def test_sql_and_python_have_the_same_bounds(conn: Connection) -> None:
    assert one(conn, "select stepwell.histogram_bounds()") == pytest.approx(BOUNDS, rel=1e-12)


def test_percentiles_are_within_a_bin_of_the_truth(conn: Connection) -> None:
    times = [0.0007 * 1.01**n for n in range(1000)]
    found = one(conn, "select stepwell.percentiles(%s::integer[]::bigint[])", histogram(*times))
    for share, seconds in zip((0.5, 0.95, 0.99), found, strict=True):
        truth = times[int(share * 1000)]
        assert truth / math.sqrt(2) < seconds < truth * math.sqrt(2)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], None),
        (None, None),
        ([0, 0], None),
        ([2], [BOUNDS[0] / 2, BOUNDS[0] * 0.95, BOUNDS[0] * 0.99]),
        ([0] * (BINS - 1) + [5], [BOUNDS[-1]] * 3),
        ([-5], None),
        ([[1, 2], [3, 4]], None),
        ([None, None], None),
    ],
)
def test_percentiles_of_odd_histograms(conn: Connection, given: Any, found: Any) -> None:
    answer = one(conn, "select stepwell.percentiles(%s::bigint[])", given)
    assert answer == (None if found is None else pytest.approx(found))


def test_histograms_of_several_writes_add_up(conn: Connection) -> None:
    conn.execute("insert into stepwell.clock (at) values (now())")  # both in one minute
    first = Sums("t", "q", succeeded=2, runs=histogram(0.001, 1.0), waits=histogram(0.001, 0.001))
    again = [Sums("t", "q", failed=1, runs=histogram(100.0), waits=histogram(0.0)) for _ in range(2)]
    fetch(conn, queries.outcomes.add_stats([first, Sums("u", "q")]))
    fetch(conn, queries.outcomes.add_stats(again))
    rows = conn.execute("select task, waits, runs from stepwell.stats order by task").fetchall()
    assert rows[1] == ("u", [], [])
    waits, runs = histogram(0.001, 0.001, 0.0, 0.0), histogram(0.001, 1.0, 100.0, 100.0)
    assert rows[0] == ("t", waits[: bin_of(0.001) + 1], runs[: bin_of(100.0) + 1])


@pytest.mark.parametrize(
    "waits", ["{}", "{1,2,3}", "{{-1,null}}", "[5:6]={1,2}", "{{2147483647},{2147483647}}", "{{{1}}}"]
)
def test_odd_histograms_are_no_error(conn: Connection, waits: str) -> None:
    conn.execute(
        "select stepwell.add_stats('{t,t}', '{q,q}', '{1}', null, null, null, null, _waits => %s::integer[])", (waits,)
    )
    assert one(conn, "select succeeded from stepwell.stats") == 1


def enqueue(conn: Connection, count: int, seconds_ago: float, task: str = "t") -> None:
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
        " select overlay(stepwell.first_uuid_at(now(), -%s)::text placing lpad(to_hex(n), 12, '0') from 25)::uuid,"
        " now(), now() - %s * interval '1 second', 'ready', %s, 'q', '{}' from generate_series(1, %s) as g (n)",
        (int(seconds_ago), seconds_ago, task, count),
    )


def enqueued(conn: Connection) -> list[Any]:
    return conn.execute("select task, sum(enqueued) from stepwell.stats group by 1 order by 1").fetchall()


def test_each_job_is_counted_once_wherever_it_is(conn: Connection) -> None:
    enqueue(conn, 5, 200, "ended")
    conn.execute(
        "with gone as (delete from stepwell.job returning *) insert into stepwell.history (id, expires_at, finished_at,"
        " run_at, enqueued_at, epoch, attempt, rank, state, task, queue, args) select id, now() + interval '1 day',"
        " now(), run_at, enqueued_at, 1, 1, 0, 'succeeded', task, queue, args from gone"
    )
    enqueue(conn, 7, 100, "live")
    enqueue(conn, 3, 1, "too new")
    found: list[int] = []
    while counted := one(conn, "select stepwell.count_enqueued(2)"):
        found.append(counted)
    assert sum(found) == 12
    assert max(found) <= 4
    assert enqueued(conn) == [("ended", 5), ("live", 7)]
    minutes = conn.execute("select distinct extract(second from minute)::integer from stepwell.stats").fetchall()
    assert minutes == [(0,)]
    assert one(conn, "select stepwell.count_enqueued()") == 0


def test_only_one_session_counts_at_a_time(conn: Connection, dsn: str) -> None:
    enqueue(conn, 5, 100)
    with psycopg.connect(dsn, autocommit=True) as other, other.transaction():
        assert one(other, "select stepwell.count_enqueued()") == 5
        assert one(conn, "select stepwell.count_enqueued()") == 0
        assert one(conn, "select stepwell.sum_stats()") == 0
    assert one(conn, "select stepwell.count_enqueued()") == 0
    assert enqueued(conn) == [("t", 5)]


def test_a_chart_is_the_same_before_and_after_counters_are_added_up(conn: Connection) -> None:
    conn.execute("insert into stepwell.clock (at) values (date_trunc('minute', now()) + interval '50 s')")
    for ago in (0, 1, 3, 7, 59, 100, 350, 700, 1300, 5000, 9000):
        for queue in ("q", "r"):
            given: dict[str, Any] = {"succeeded": 10, "failed": 1, "suspended": 2, "seconds": 5.0, "enqueued": 11}
            counted(conn, ago, queue=queue, waits=histogram(0.01, ago + 1.0), runs=histogram(0.1), **given)
    before = {name: chart(conn, name) for name in RANGES}
    tasks = {name: one(conn, "select stepwell.dashboard_tasks(_range => %s)", name) for name in RANGES}
    one(conn, "select stepwell.count_enqueued()")
    sum_all(conn)
    assert {name: chart(conn, name) for name in RANGES} == before
    assert {name: one(conn, "select stepwell.dashboard_tasks(_range => %s)", name) for name in RANGES} == tasks
    assert one(conn, "select array_agg(distinct minutes order by minutes) from stepwell.stat_sum") == [1, 5, 60, 360]
    totals = [(found["total"]["ended"], found["total"]["succeeded"]) for found in before.values()]
    assert totals == [(13 * 2 * n, 10 * 2 * n) for n in (4, 5, 7, 9, 11)]
    assert [task["stats"]["ended"] for task in tasks["7d"]["tasks"]] == [13 * 2 * 11]
    # The counters themselves are no longer read, but for the newest.
    conn.execute("delete from stepwell.stat where minute < date_trunc('minute', stepwell.now())")
    assert {name: chart(conn, name) for name in RANGES} == before


def test_numbers_that_no_worker_counts_are_ignored_and_sums_stay_at_the_largest_number(conn: Connection) -> None:
    conn.execute("insert into stepwell.clock (at) values (date_trunc('minute', now()) + interval '10 s')")
    largest = 2**31 - 1
    counts = ("succeeded", "failed", "cancelled", "handed_back", "suspended", "snoozed", "advanced", "restarted",
        "undone", "refused")  # fmt: skip
    ignored = [
        *(Sums("t", "q", seconds=seconds) for seconds in (math.nan, math.inf, -math.inf, -1.0)),
        *(replace(Sums("t", "q"), **{name: -1}) for name in counts),
    ]
    fetch(conn, queries.outcomes.add_stats(ignored))
    assert one(conn, "select count(*) from stepwell.stat") == 0
    full, again = (
        replace(Sums("t", "q", seconds=1e308, runs=[largest] * BINS), **dict.fromkeys(counts, largest))
        for _ in range(2)
    )
    for _ in range(2):
        fetch(conn, queries.outcomes.add_stats([*ignored, full, again, Sums("other", "q", succeeded=1)]))
    found = conn.execute(f"select task, seconds, {', '.join(counts)} from stepwell.stat order by task".encode())
    assert found.fetchall() == [("other", 0.0, 2, *[0] * 9), ("t", 1e15, *[largest] * 10)]
    before = chart(conn)["total"]
    assert before["ended"] >= largest
    conn.execute("update stepwell.clock set at = at + interval '10 minutes'")
    sum_all(conn)
    assert one(conn, "select max(succeeded) from stepwell.stat_sum") == largest
    assert chart(conn)["total"]["ended"] >= largest


def test_a_chart_has_few_points_whatever_its_range(conn: Connection) -> None:
    for name, minutes in RANGES.items():
        found = chart(conn, name)
        assert found["range"] == name
        assert found["points"] <= 120
        assert found["points"] * found["point_seconds"] == minutes * 60
        assert found["found"] == []
        assert found["total"]["waited"] is None
    assert chart(conn, "no such")["range"] == "1h"


def test_a_queue_has_its_runs_and_percentiles(conn: Connection) -> None:
    counted(conn, 2, queue="q", succeeded=98, failed=2, seconds=10.0, runs=histogram(*[0.1] * 98, 5.0, 5.0))
    counted(conn, 2, queue="other", succeeded=1, runs=histogram(1.0))
    [queue] = one(conn, "select stepwell.dashboard_queues(_name => 'q')")["queues"]
    stats = queue["stats"]
    assert (stats["succeeded"], stats["failed"], stats["ended"], stats["waited"]) == (98, 2, 100, None)
    half, most, nearly_all = stats["ran"]
    assert half == pytest.approx(0.1, rel=0.3)
    assert most == pytest.approx(0.1, rel=0.3)
    assert nearly_all == pytest.approx(5, rel=0.4)
    assert [point[1:] for point in stats["points"]] == [[98, 2]]


def test_sums_are_forgotten_in_time(conn: Connection) -> None:
    for days in (0.1, 1, 3, 6, 9, 10):
        for minutes in (1, 5, 60, 360):
            conn.execute(
                "insert into stepwell.stat_sum"
                " values (%s, now() - %s * interval '1 day', '', '', 0, 0, 0, 0, 0, 0, '{}', '{}')",
                (minutes, days),
            )
    while one(conn, "select stepwell.prune_stats(_limit => 3)"):
        pass
    kept = conn.execute("select minutes, count(*) from stepwell.stat_sum group by 1 order by 1").fetchall()
    assert kept == [(1, 2), (5, 2), (60, 4), (360, 4)]


def test_a_clock_that_was_ahead_for_a_while_hides_and_loses_no_counters(conn: Connection) -> None:
    """The charts were blank until the day came to which the clock had been set, and for good in between."""
    conn.execute("insert into stepwell.clock (at) values (date_bin('6 hours', now(), '2000-01-01') + interval '50 s')")
    given: dict[str, Any] = {"succeeded": 1, "runs": histogram(0.1)}

    def set_clock(after: str) -> None:
        conn.execute("update stepwell.clock set at = at + %s::interval", (after,))

    def ended() -> dict[str, int]:
        return {name: chart(conn, name)["total"]["ended"] for name in RANGES}

    for ago in (1, 10, 100, 1000):
        counted(conn, ago, **given)
    sum_all(conn)
    # Not added up yet, and older than two days to the clock that is ahead.
    counted(conn, 0, **given)
    set_clock("3 days")
    counted(conn, 1, **given)
    sum_all(conn)
    set_clock("-3 days 10 minutes")
    counted(conn, 1, **given)
    before = ended()
    assert before == {"15m": 3, "1h": 4, "6h": 5, "1d": 6, "7d": 6}
    for _ in range(2):
        sum_all(conn)
        assert ended() == before
        set_clock("7 hours")
        counted(conn, 400, **given)
        before = ended()
        assert (before["6h"], before["1d"]) == (0, 7)  # by now, the oldest is older than a day
    sum_all(conn)
    conn.execute("delete from stepwell.stat where minute < date_trunc('minute', stepwell.now())")
    assert ended()["7d"] == 8
    # When the clock is there again, its counters are there once.
    set_clock("3 days")
    sum_all(conn)
    assert ended()["7d"] == 9


def test_enqueued_jobs_are_counted_again_once_after_the_clock_was_ahead(conn: Connection) -> None:
    def count(after: str) -> list[Any]:
        conn.execute("update stepwell.clock set at = at + %s::interval", (after,))
        one(conn, "select stepwell.count_enqueued()")
        one(conn, "select stepwell.count_enqueued()")
        return enqueued(conn)

    conn.execute("insert into stepwell.clock (at) values (now())")
    enqueue(conn, 5, 100, "before")
    assert count("0") == [("before", 5)]
    enqueue(conn, 3, -3600 - 600, "ahead")  # as far as its id tells, too
    assert count("2 hours") == [("ahead", 3), ("before", 5)]
    assert count("-2 hours") == [("ahead", 0), ("before", 5)]
    enqueue(conn, 7, -300, "after")
    assert count("10 minutes") == [("after", 7), ("ahead", 0), ("before", 5)]
    assert count("40 minutes") == [("after", 7), ("ahead", 0), ("before", 5)]
    assert count("1 hour") == [("after", 7), ("ahead", 3), ("before", 5)]
