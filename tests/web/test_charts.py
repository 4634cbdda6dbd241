"""The charts of runs on pages and as JSON: every range, numbers as text, and hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from web.site import HOSTILE, Site, served

from stepwell import App
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Sums
from stepwell.values.histogram import BINS, bin_of
from stepwell.web import Dashboard
from stepwell.web.ranges import RANGES

CHARTED = ["/", "/queues", "/tasks"]


def histogram(count: int, seconds: float) -> list[int]:
    return [count if place == bin_of(seconds) else 0 for place in range(BINS)]


@pytest.fixture(scope="module")
def counted(module_dsn: str) -> Iterator[Site]:
    """Two tasks with runs in this minute, one of them with a hostile name, and a queue that has a setting."""
    sums = [
        Sums("quick", "mail", succeeded=90, failed=10, seconds=5.0, waits=histogram(100, 2), runs=histogram(100, 0.05)),
        Sums(HOSTILE, HOSTILE, suspended=3, seconds=3.0, waits=histogram(3, 0.0002), runs=histogram(3, 1)),
    ]
    with psycopg.connect(module_dsn, autocommit=True) as conn:
        fetch(conn, queries.outcomes.add_stats(sums))
        for queue in ("mail", HOSTILE):
            conn.execute("select stepwell.set_queue(%s, 5)", (queue,))
    app = App(module_dsn)
    with served(Dashboard(app)) as site:
        yield site
    app.close()


@pytest.mark.parametrize("path", CHARTED)
@pytest.mark.parametrize("span", RANGES)
def test_each_range_has_its_pages(counted: Site, path: str, span: str) -> None:
    answer = counted.get(f"{path}?range={span}")
    assert answer.status == 200
    assert HOSTILE not in answer.text
    assert " style=" not in answer.text
    assert f'range={span}" aria-current="true"' in answer.text


@pytest.mark.parametrize("path", CHARTED)
@pytest.mark.parametrize("span", ["", "2h", "<b>", "1h%00"])
def test_another_range_is_refused_by_name(counted: Site, path: str, span: str) -> None:
    answer = counted.get(f"{path}?range={span}")
    assert answer.status == 400
    assert "15m, 1h, 6h, 1d, 7d" in answer.text
    assert "<b>" not in answer.text.partition("<main")[2].partition("</main>")[0]


@pytest.mark.parametrize("span", RANGES)
def test_the_overview_has_every_point_as_json(counted: Site, span: str) -> None:
    chart = counted.json(f"/?range={span}")["chart"]
    assert (chart["range"], chart["total"]["ended"], chart["total"]["failed"]) == (span, 103, 10)
    assert sum(point["ended"] for point in chart["points"]) == 103
    assert 12 <= len(chart["points"]) <= 120
    times = [point["at"] for point in chart["points"]]
    assert times == sorted(times)
    assert chart["points"][-1]["at"] <= chart["until"]
    waited, ran = chart["total"]["waited"], chart["total"]["ran"]
    assert waited == pytest.approx([2, 2, 2], rel=0.45)
    assert ran[0] == pytest.approx(0.05, rel=0.45)
    assert ran[2] == pytest.approx(1, rel=0.45)


def test_a_chart_can_be_read_as_text(counted: Site) -> None:
    page = counted.get("/").text
    assert "103 ended, 10 of them failed" in page
    assert "Waiting time in the last hour: half within" in page
    assert "The charts as a table" in page


def test_queues_and_tasks_have_rates_and_percentiles(counted: Site) -> None:
    queues = {queue["name"]: queue["stats"] for queue in counted.json("/queues")["queues"]}
    assert (queues["mail"]["ended"], queues["mail"]["failed"]) == (100, 10)
    assert queues["mail"]["waited"][1] == pytest.approx(2, rel=0.45)
    assert queues[HOSTILE]["waited"][0] < 0.001
    tasks: dict[str, Any] = {task["name"]: task["stats"] for task in counted.json("/tasks?range=15m")["tasks"]}
    # The 14 minutes before this one, and what there is of this one.
    assert 100 / 900 <= tasks["quick"]["rate"] <= 100 / 840
    assert [point[1:] for point in tasks["quick"]["points"]] == [[90, 10]]
    page = counted.get("/tasks").text
    assert page.count('class="spark"') == 1  # a task whose runs were all suspended has none
    assert counted.get("/queues").text.count('class="spark"') == 1


def test_python_and_sql_have_the_same_ranges(module_dsn: str) -> None:
    with psycopg.connect(module_dsn, autocommit=True) as conn:
        for each in RANGES.values():
            row = conn.execute(
                "select name, spark_points, spark_minutes * 60 from stepwell.stat_range(%s)", (each.name,)
            )
            assert row.fetchone() == (each.name, each.spark_points, each.spark_seconds)
