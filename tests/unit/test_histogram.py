"""Bins for waiting and run times."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from stepwell.values.histogram import BINS, BOUNDS, bin_of
from stepwell.web.charts import bars, lines


def test_bins_cover_all_times_in_even_steps() -> None:
    assert (BOUNDS[0], BOUNDS[26], BOUNDS[-1]) == (2**-13, 1.0, 2**20)
    steps = [after / before for before, after in pairwise(BOUNDS)]
    assert steps == pytest.approx([math.sqrt(2)] * len(steps))


@pytest.mark.parametrize(
    ("seconds", "found"),
    [(-5.0, 0), (0.0, 0), (2**-13, 0), (1.0, 26), (1.000001, 27), (2**20, 66), (2**20 + 1, 67), (math.inf, BINS - 1)],
)
def test_a_time_is_in_the_bin_that_its_bound_closes(seconds: float, found: int) -> None:
    assert bin_of(seconds) == found


def test_lines_have_gaps_where_nothing_was_counted_and_stay_within_the_chart() -> None:
    drawn = lines([None, (0.001, 0.01, 5.0), None, (0.002, 0.02, 7e6)], 400, 100)
    assert drawn is not None
    assert [path.count("M") for path in drawn.paths] == [2, 2, 2]
    assert [seconds for seconds, _ in drawn.scale] == [10.0**power for power in range(7, -4, -1)]
    heights = [float(part.partition("H")[0].split()[1]) for path in drawn.paths for part in path.split("M")[1:]]
    assert all(0 <= height <= 100 for height in heights)
    assert lines([None, None], 400, 100) is None
    same = lines([(0.0, 0.0, 0.0)], 400, 100)
    assert same is not None
    assert len(same.scale) == 2


def test_the_line_over_bars_has_their_scale() -> None:
    drawn = bars([(1, 0), (3, 1)], 100, 50, [8, None])
    assert (drawn.most, drawn.line) == (8, "M0.00 1.00H50.00")
    assert bars([(1, 0)], 100, 50).line == ""
