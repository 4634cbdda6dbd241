"""Taking jobs: in order, fairly, only one's own, and only with a lease."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from . import calls
from .calls import FRONT, Connection, Position

CLOCK = 1_800_000_000.0


@pytest.fixture
def worker(conn: Connection) -> str:
    calls.set_clock(conn, CLOCK)
    return calls.register_worker(conn)


def test_a_claimed_job_runs_with_a_new_epoch_and_counts_an_attempt(conn: Connection, worker: str) -> None:
    job_id = calls.enqueue(conn)
    (held,) = calls.claim(conn, worker)
    assert (held.id, held.epoch, held.attempt) == (job_id, 1, 1)
    row = conn.execute(
        "select state::text, worker_id::text, extract(epoch from claimed_at) from stepwell.jobs where id = %s::uuid",
        (job_id,),
    ).fetchone()
    assert row == ("running", worker, CLOCK)


def test_the_order_is_priority_then_run_at_then_id(conn: Connection, worker: str) -> None:
    late = calls.enqueue(conn, run_at=CLOCK)
    early = calls.enqueue(conn, run_at=CLOCK - 60)
    first, second = calls.enqueue_many(conn, ["{}", "{}"], run_ats=[CLOCK - 30])
    urgent = calls.enqueue(conn, run_at=CLOCK, priority=5)
    whenever = calls.enqueue(conn, run_at=CLOCK - 90, priority=-5)
    taken: list[str] = []
    while held := calls.claim(conn, worker, 1):
        taken.append(held[0].id)
    assert taken == [urgent, early, first, second, late, whenever]


def test_a_job_that_is_not_due_is_not_claimed(conn: Connection, worker: str) -> None:
    calls.enqueue(conn, delay=0.001)
    assert calls.claim(conn, worker) == []


def test_unknown_tasks_and_other_queues_are_left_alone(conn: Connection, worker: str) -> None:
    calls.enqueue(conn, "from_a_newer_deploy", priority=9)
    calls.enqueue(conn, queue="other", priority=9)
    mine = calls.enqueue(conn)
    assert [held.id for held in calls.claim(conn, worker)] == [mine]
    attempts = conn.execute("select sum(attempt), sum(epoch) from stepwell.jobs where state = 'ready'").fetchone()
    assert attempts == (0, 0)


@pytest.mark.parametrize(
    ("waiting", "limit", "shares"),
    [
        ((100, 100), 10, (5, 5)),
        ((100, 2), 10, (8, 2)),
        ((2, 100), 10, (2, 8)),
        ((100, 0, 100), 9, (3, 0, 6)),
        ((0, 0, 3), 9, (0, 0, 3)),
        ((100, 1, 1), 9, (7, 1, 1)),
        ((100, 100, 100), 2, (1, 1, 0)),
        ((0, 0, 5), 1, (0, 0, 1)),
        ((3, 3), 100, (3, 3)),
    ],
)
def test_each_queue_gives_its_fair_share_first(
    conn: Connection, worker: str, waiting: tuple[int, ...], limit: int, shares: tuple[int, ...]
) -> None:
    queues = [f"q{n}" for n in range(len(waiting))]
    for queue, count in zip(queues, waiting, strict=True):
        calls.enqueue_many(conn, ["{}"] * count, queues=[queue])
    held = calls.claim(conn, worker, limit, queues=queues)
    assert tuple(sum(job.queue == queue for job in held) for queue in queues) == shares


@pytest.mark.parametrize(
    ("given", "waiting", "limit", "gave"),
    [
        ((3, 1), (100, 100), 8, (6, 2)),
        ((1, 3), (100, 100), 8, (2, 6)),
        ((3, 1), (100, 100), 1, (1, 0)),
        ((3, 1), (0, 100), 1, (0, 1)),
        ((3, 1), (2, 100), 8, (2, 6)),
        ((3, 1), (100, 1), 8, (7, 1)),
        ((2, 1, 1), (100, 100, 0), 9, (7, 2, 0)),
        # One after the other.
        ((1, 0, 0), (100, 100, 100), 10, (10, 0, 0)),
        ((1, 0, 0), (4, 3, 100), 10, (4, 3, 3)),
        ((1, 0, 0), (0, 0, 2), 10, (0, 0, 2)),
        # A share of nothing is for what the others leave.
        ((0, 1), (100, 100), 10, (0, 10)),
        ((0, 1), (100, 4), 10, (6, 4)),
        ((0, 1, 0), (100, 4, 100), 10, (0, 4, 6)),
        ((0, 0), (100, 100), 10, (10, 0)),
        # Beyond the end, shares are equal to 1.
        ((), (100, 100), 10, (5, 5)),
        ((3,), (100, 100), 8, (6, 2)),
    ],
)
def test_shares_can_be_given(
    conn: Connection,
    worker: str,
    given: tuple[float, ...],
    waiting: tuple[int, ...],
    limit: int,
    gave: tuple[int, ...],
) -> None:
    queues = [f"q{n}" for n in range(len(waiting))]
    for queue, count in zip(queues, waiting, strict=True):
        calls.enqueue_many(conn, ["{}"] * count, queues=[queue])
    held = calls.claim(conn, worker, limit, queues=queues, shares=given)
    assert tuple(sum(job.queue == queue for job in held) for queue in queues) == gave


def test_shares_are_among_the_queues_that_are_not_paused(conn: Connection, worker: str) -> None:
    for queue in ("a", "b", "c"):
        calls.enqueue_many(conn, ["{}"] * 20, queues=[queue])
    conn.execute("select stepwell.pause('a')")
    held = calls.claim(conn, worker, 8, queues=["a", "b", "c"], shares=[100, 3, 1])
    assert [sum(job.queue == queue for job in held) for queue in ("a", "b", "c")] == [0, 6, 2]


def test_a_claim_without_shares_needs_no_eighth_argument(conn: Connection, worker: str) -> None:
    calls.enqueue(conn)
    claimed = conn.execute(
        "select id from stepwell.claim_jobs(%s, '{default}', null, null, null, '{work}', 5)", (worker,)
    )
    assert len(claimed.fetchall()) == 1


def test_a_claim_looks_only_after_its_position(conn: Connection, worker: str) -> None:
    ids = calls.enqueue_many(conn, ["{}"] * 4)
    places = [Position(0, CLOCK, job_id) for job_id in ids]
    assert [held.id for held in calls.claim(conn, worker, 1, positions=[places[1]])] == [ids[2]]
    assert [held.id for held in calls.claim(conn, worker, positions=[places[2]])] == [ids[3]]
    # What came in ahead of it, and what it passed over, is seen from the front.
    urgent = calls.enqueue(conn, priority=1)
    assert calls.claim(conn, worker, positions=[places[3]]) == []
    assert [held.id for held in calls.claim(conn, worker, positions=[FRONT])] == [urgent, ids[0], ids[1]]


def test_each_queue_has_its_own_position(conn: Connection, worker: str) -> None:
    a = calls.enqueue_many(conn, ["{}"] * 2, queues=["a"])
    b = calls.enqueue_many(conn, ["{}"] * 2, queues=["b"])
    held = calls.claim(conn, worker, queues=["a", "b"], positions=[FRONT, Position(0, CLOCK, b[0])])
    assert [job.id for job in held] == [*a, b[1]]


def test_a_position_reaches_across_ranks_and_times(conn: Connection, worker: str) -> None:
    passed = calls.enqueue(conn, priority=5)
    later = calls.enqueue(conn, run_at=CLOCK - 1)
    low = calls.enqueue(conn, priority=-5, run_at=CLOCK - 100)
    held = calls.claim(conn, worker, positions=[Position(-5, CLOCK, passed)])
    assert [job.id for job in held] == [later, low]


def test_a_paused_queue_gives_nothing_until_resumed(conn: Connection, worker: str) -> None:
    calls.enqueue(conn)
    other = calls.enqueue(conn, queue="other")
    conn.execute("select stepwell.pause('default')")
    conn.execute("select stepwell.pause('default')")
    assert [job.id for job in calls.claim(conn, worker, queues=["default", "other"])] == [other]
    conn.execute("select stepwell.resume('default')")
    assert len(calls.claim(conn, worker)) == 1


def test_pausing_again_does_not_move_the_time_of_the_pause(conn: Connection, worker: str) -> None:
    conn.execute("select stepwell.pause('default')")
    calls.set_clock(conn, CLOCK + 60)
    conn.execute("select stepwell.pause('default')")
    paused_at = "select extract(epoch from paused_at)::double precision from stepwell.queues where name = 'default'"
    assert calls.one(conn.execute(paused_at)) == CLOCK
    conn.execute("select stepwell.resume('default')")
    assert conn.execute(paused_at).fetchall() == []


def test_without_a_lease_nothing_is_claimed(conn: Connection, worker: str) -> None:
    calls.enqueue(conn)
    calls.set_clock(conn, CLOCK + 3600)
    with pytest.raises(psycopg.Error, match=f"stepwell: worker {worker} has no lease") as ended:
        calls.claim(conn, worker)
    assert ended.value.sqlstate == "SW001"
    calls.renew(conn, worker)
    assert len(calls.claim(conn, worker)) == 1
    calls.unregister_worker(conn, worker)
    with pytest.raises(psycopg.Error) as unknown:
        calls.claim(conn, worker)
    assert unknown.value.sqlstate == "SW001"


def test_what_another_worker_is_claiming_is_passed_over(conn: Connection, dsn: str, worker: str) -> None:
    ids = calls.enqueue_many(conn, ["{}"] * 4)
    with psycopg.connect(dsn) as other:
        assert [held.id for held in calls.claim(other, worker, 2)] == ids[:2]
        assert [held.id for held in calls.claim(conn, worker, 2)] == ids[2:]
        assert calls.claim(conn, worker, 2) == []
        other.rollback()
    assert [held.id for held in calls.claim(conn, worker)] == ids[:2]


def test_workers_that_claim_at_once_never_share_a_job(conn: Connection, dsn: str, worker: str) -> None:
    ids = calls.enqueue_many(conn, ["{}"] * 2000, queues=["a", "b"] * 1000)

    def claim_all(queues: tuple[str, ...]) -> list[str]:
        taken: list[str] = []
        with psycopg.connect(dsn, autocommit=True) as own:
            while held := calls.claim(own, worker, 7, queues=queues):
                taken += [job.id for job in held]
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = [job_id for ids in threads.map(claim_all, [("a", "b"), ("b", "a")] * 2) for job_id in ids]
    assert sorted(taken) == sorted(ids)
    assert calls.one(conn.execute("select max(epoch) from stepwell.jobs")) == 1
