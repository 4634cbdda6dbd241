"""The step that a job of a chain has begun with, saved when an attempt at it ends without success."""

from __future__ import annotations

import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Move

from . import calls
from .calls import Connection, Held


@pytest.fixture
def held(conn: Connection) -> Held:
    calls.enqueue_many(conn, ['{"n": 7}'])
    [job] = calls.claim(conn, calls.register_worker(conn), 1)
    return job


def fail(conn: Connection, job: Held, first_step: str) -> None:
    failed = queries.outcomes.fail(
        [job.id], [job.epoch], ["error"], ["E"], ["m"], [None], [5.0], [3], [60.0], [first_step],
        first_steps=[first_step],
    )  # fmt: skip
    assert fetch(conn, failed)[0] == []


def test_a_failure_in_the_first_step_saves_that_step_and_does_not_count_as_progress(
    conn: Connection, held: Held
) -> None:
    conn.execute("update stepwell.job set attempt = 2")  # the first attempt was lost with its worker
    fail(conn, held, "one")
    assert conn.execute("select n, kind, key, value from stepwell.step").fetchall() == [(1, "state", "one", {"n": 7})]
    assert conn.execute("select cursor, attempt, durable from stepwell.job").fetchone() == (None, 2, True)


def test_a_machine_that_is_back_in_its_first_state_is_not_taken_for_one_that_begins(
    conn: Connection, held: Held
) -> None:
    """The worker may not know that it has moved: the answer to a move may be lost."""
    for left, to, given, n in (("one", "two", "8", 2), (None, "one", "9", 3)):
        assert fetch(conn, queries.outcomes.advance([Move(held.id, held.epoch, left, to, given, n)]))[0] == []
    fail(conn, held, "one")
    assert conn.execute("select n, key, value from stepwell.step order by n").fetchall() == [
        (2, "two", 8),
        (3, "one", 9),
    ]
