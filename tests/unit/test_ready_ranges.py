"""Where in a queue something may be ready."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.postgres.queries.claims import Position
from stepwell.worker.claiming.ready_ranges import LAST_RANK, ReadyRange, ReadyRanges

Job = tuple[int, int]
"""A job's rank and time."""


def place(rank: int, run_at: int, last_rank: int | None = None) -> ReadyRange:
    return ReadyRange(Position(rank, run_at), rank if last_rank is None else last_rank)


def test_a_place_behind_one_of_the_same_rank_takes_its_place() -> None:
    places = ReadyRanges()
    places.add("a", place(0, 100))
    places.add("a", place(0, 50))
    assert places.first("a") == place(0, 50)
    places.end("a")
    assert "a" not in places


def test_a_place_ahead_of_one_of_the_same_rank_is_part_of_it() -> None:
    places = ReadyRanges()
    places.add("a", place(0, 50))
    places.add("a", place(0, 100))
    places.end("a")
    assert "a" not in places


def test_ranks_are_claimed_from_in_order_and_end_by_themselves() -> None:
    places = ReadyRanges()
    for rank in (3, -5, 0):
        places.add("a", place(rank, 100))
    assert places.first("a") == place(-5, 100)
    places.advance("a", Position(-5, 170, "id"))
    places.add("a", place(-5, 180))
    assert places.first("a") == ReadyRange(Position(-5, 170, "id"), -5)
    places.end("a")
    assert places.first("a") == place(0, 100)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(-3, 30), st.integers(0, 9), st.booleans()), min_size=1, max_size=60))
def test_every_job_that_was_told_of_is_in_one_of_the_places(told: list[tuple[int, int, bool]]) -> None:
    """Whatever is left out, merged or replaced, each job that became ready there or behind it is found."""
    places = ReadyRanges()
    for rank, run_at, to_the_end in told:
        places.add("a", place(rank, run_at, LAST_RANK if to_the_end else None))
    found: set[Job] = set()
    jobs = {(rank, run_at) for rank in range(-3, 32) for run_at in range(12)}
    while "a" in places:
        after, last_rank = places.first("a")
        found |= {(rank, run_at) for rank, run_at in jobs if (rank, run_at) >= after[:2] and rank <= last_rank}
        places.end("a")
    for rank, run_at, to_the_end in told:
        meant = {job for job in jobs if job >= (rank, run_at) and (to_the_end or job[0] == rank)}
        assert meant <= found
