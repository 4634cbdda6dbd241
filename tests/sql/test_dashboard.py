"""The functions of the dashboard among 60,000 jobs: what they find, and how much they read for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from . import calls
from .calls import Connection

MANY = 30_000


@pytest.fixture(scope="module")
def crowd(module_dsn: str) -> Iterator[Connection]:
    """Rare jobs of every state, and then, newer than these, many ready and many succeeded ones."""
    with psycopg.connect(module_dsn, autocommit=True) as conn:
        conn.execute("select stepwell.make_partitions(array[86400, 2592000])")
        conn.execute(
            "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
            " select stepwell.uuid7(), now(), now(), s.state, 'rare', 'rare/' || s.state, '{\"n\": 1}'"
            " from unnest('{scheduled,waiting,blocked,ready}'::stepwell.state[]) as s (state)"
        )
        conn.execute(
            "insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank,"
            " state, task, queue, args, error) select stepwell.uuid7(), now() + interval '1 day', now(), now(), now(),"
            " 1, 1, 0, s.state, 'rare', 'rare', '{}', 'Rare: error'"
            " from unnest('{failed,cancelled}'::stepwell.state[]) as s (state)"
        )
        conn.execute(
            "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
            " select stepwell.uuid7(), now(), now(), 'ready', 'many', 'many' || n %% 3, json_build_object('n', n)"
            " from generate_series(1, %s) as g (n)",
            (MANY,),
        )
        conn.execute(
            "insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank,"
            " state, task, queue, args) select stepwell.uuid7(), now() + interval '1 day', now(), now(), now(), 1, 1,"
            " 0, 'succeeded', 'many', 'many', '{}' from generate_series(1, %s)",
            (MANY,),
        )
        yield conn


def call(conn: Connection, function: str, **given: Any) -> Any:
    named = ", ".join(f"_{name} => %({name})s" for name in given)
    row = conn.execute(f"select stepwell.dashboard_{function}({named})".encode(), given).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("state", ["scheduled", "waiting", "blocked", "failed", "cancelled"])
def test_a_rare_state_is_found_behind_many_newer_jobs_at_once(crowd: Connection, state: str) -> None:
    found = call(crowd, "jobs", state=state)
    assert [job["task"] for job in found["jobs"]] == ["rare"]
    # It did not walk through the others.
    assert (found["looked"], found["looked_to"]) == (1, None)


def test_rare_ready_jobs_of_a_queue_are_found(crowd: Connection) -> None:
    found = call(crowd, "jobs", state="ready", queue="rare/ready")
    assert ([job["task"] for job in found["jobs"]], found["looked"]) == (["rare"], 1)


def test_a_search_stops_in_time_and_can_be_continued(crowd: Connection) -> None:
    found = call(crowd, "jobs", task="rare", milliseconds=1)
    looked = found["looked"]
    assert found["looked_to"] is not None
    assert not found["full"]
    assert found["looked_to_time"]
    jobs = list[Any](found["jobs"])
    while found["looked_to"]:
        found = call(crowd, "jobs", task="rare", before=found["looked_to"], milliseconds=2000)
        jobs += found["jobs"]
        looked += found["looked"]
    assert (len(jobs), looked) == (6, 2 * MANY + 6)


def test_counts_stop(crowd: Connection) -> None:
    states = call(crowd, "overview", milliseconds=10_000)["states"]
    assert (states["ready"], states["succeeded"], states["waiting"], states["failed"]) == (10_000, 10_000, 1, 1)
    assert states["more"] == ["ready", "succeeded"]
    states = call(crowd, "overview", milliseconds=0)["states"]
    assert (states["ready"], states["succeeded"], states["waiting"], states["failed"]) == (1_000, 1_000, 1, 1)
    assert states["more"] == ["ready", "succeeded"]
    # None of the newest jobs is of this queue, and there are older ones.
    states = call(crowd, "names", queue="nobody's")["states"]
    assert (states["succeeded"], states["ready"], states["more"]) == (0, 0, ["succeeded"])
    queues = {queue["name"]: queue["counts"] for queue in call(crowd, "queues", milliseconds=10_000)["queues"]}
    assert queues["many0"]["ready"] == MANY // 3
    assert queues["rare/waiting"]["waiting"] == 1
    hurried = {queue["name"]: queue["counts"] for queue in call(crowd, "queues", milliseconds=0)["queues"]}
    assert (hurried["many0"]["ready"], hurried["many0"]["most"]) == (101, 100)


def test_names_come_page_by_page(crowd: Connection) -> None:
    first = call(crowd, "queues", limit=2)
    second = call(crowd, "queues", limit=2, after=first["next"])
    assert [queue["name"] for queue in (*first["queues"], *second["queues"])] == [
        "many0",
        "many1",
        "many2",
        "rare/blocked",
    ]


def test_a_page_reads_little_of_many_jobs(crowd: Connection) -> None:
    """Names are skipped through: a distinct over all jobs would read each of them."""
    with crowd.transaction(force_rollback=True):
        before = entries_read(crowd)
        call(crowd, "names")
        assert entries_read(crowd) - before < 13_000


def entries_read(conn: Connection) -> int:
    row = conn.execute(
        "select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::integer from pg_class c"
        " where c.relname like 'job%' and c.relnamespace = 'stepwell'::regnamespace"
    ).fetchone()
    assert row is not None
    return row[0]


def test_bounds_hold_for_odd_arguments(crowd: Connection) -> None:
    assert len(call(crowd, "jobs", limit=100_000)["jobs"]) == 500
    assert len(call(crowd, "jobs", limit=-5)["jobs"]) == 1
    assert call(crowd, "jobs", limit=None, milliseconds=None)["full"]
    assert call(crowd, "queues", limit=0)["next"] == "many0"
    assert call(crowd, "job", id=None) is None
    assert call(crowd, "steps", id=None, offset=-1, limit=-1) == []


def test_a_search_by_failure_stops_in_time_if_the_jobs_have_failed_otherwise_since(conn: Connection) -> None:
    jobs = put_failed_twice(conn, 4000)
    first = value(conn, "select stepwell.fingerprint('many', 'First', null)")
    second = value(conn, "select stepwell.fingerprint('many', 'Second', null)")
    found = call(conn, "jobs", failure=first, milliseconds=1)
    assert (found["jobs"], 1 <= found["looked"] < 4000) == ([], True)
    assert found["looked_to"] is not None
    rest = call(conn, "jobs", failure=first, before=found["looked_to"], milliseconds=9000)
    assert (rest["jobs"], rest["looked_to"], found["looked"] + rest["looked"]) == ([], None, 4000)
    assert [job["id"] for job in call(conn, "jobs", failure=second, limit=2)["jobs"]] == jobs[:2]
    # Jobs that are no longer kept do not match, and are looked at like the others.
    conn.execute("delete from stepwell.history")
    found = call(conn, "jobs", failure=second, milliseconds=1)
    assert (found["jobs"], 1 <= found["looked"] < 4000) == ([], True)


def put_failed_twice(conn: Connection, count: int) -> list[str]:
    """Jobs that failed as First and then as Second, the newest first."""
    rows = conn.execute(
        "with jobs as ("
        " insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank, state,"
        "   task, queue, args) select stepwell.uuid7(), now() + interval '1 day', now(), now(), now(), 2, 2, 0,"
        "   'failed', 'many', 'many', '{}' from generate_series(1, %s) returning id"
        "), failures as ("
        " insert into stepwell.failure (job_id, expires_at, failed_at, epoch, attempt, reason, type, message,"
        "   fingerprint) select j.id, now() + interval '1 day', now(), k.epoch, k.epoch, 'error', k.type, '',"
        "   stepwell.fingerprint('many', k.type, null)"
        " from jobs j cross join (values (1, 'First'), (2, 'Second')) as k (epoch, type)"
        ") select id::text from jobs order by id desc",
        (count,),
    )
    return [row[0] for row in rows]


def test_progress_is_given_whole_or_not_at_all(conn: Connection) -> None:
    long, longer = put_live(conn, 2, "running")
    for job, size in ((long, 300), (longer, 2000)):
        conn.execute(
            "update stepwell.job set progress = json_build_object('done', 1, 'message', repeat('x', %s)) where id = %s",
            (size, job),
        )
    first, second = call(conn, "jobs", state="running")["jobs"]
    assert json.loads(first["progress"]) == {"done": 1, "message": "x" * 300}
    assert second["progress"] is None


def test_a_backlog_has_the_troubles_of_every_queue(conn: Connection) -> None:
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, rank, args)"
        " select stepwell.uuid7(), now() - n * interval '1 second', now(), 'ready', 'many',"
        " 'q' || to_char(n, 'fm000'), r.rank, '{}' from generate_series(1, 300) as g (n) cross join"
        " unnest('{0,3}'::smallint[]) as r (rank)"
    )
    worker = calls.register_worker(conn)
    conn.execute("update stepwell.worker set queues = '{q*,nothing}' where id = %s", (worker,))
    found = call(conn, "overview", milliseconds=20_000)["backlog"]
    assert (found["looked"], found["all"], found["paused"], found["unclaimed"]) == (300, True, [], [])
    assert found["oldest"]["queue"] == found["late"]["queue"] == "q300"
    # The oldest job of a queue may be of any rank.
    conn.execute("update stepwell.job set run_at = run_at - interval '1 hour' where queue = 'q200' and rank = 3")
    conn.execute("select stepwell.pause('q200')")
    conn.execute("update stepwell.worker set queues = '{q1*,q200,q3*}' where id = %s", (worker,))
    found = call(conn, "overview", milliseconds=20_000)["backlog"]
    assert (found["oldest"]["queue"], found["late"]["queue"]) == ("q200", "q300")
    assert (found["paused"], found["unclaimed"]) == (["q200"], [f"q{n:03}" for n in (*range(1, 100), 201)])
    found = call(conn, "overview", milliseconds=0)["backlog"]
    assert (found["looked"], found["all"]) == (1, False)


@pytest.mark.parametrize("kind", ["workers", "schedules", "tasks", "bulks"])
def test_a_list_says_that_there_are_more_and_goes_on(conn: Connection, kind: str) -> None:
    names = [f"{letter}{n}" for letter in "AaBb" for n in (1, 2)]
    for pid, name in enumerate(names):
        calls.register_worker(conn, pid=pid)
        put_schedules(conn, name, 1, name)
        conn.execute("select stepwell.start_bulk('retry', '{}')")
    found, pages = list[Any](), list[int]()
    further: dict[str, Any] = {}
    while True:
        page = call(conn, kind, limit=3, **further)
        found += page[kind]
        pages.append(len(page[kind]))
        if page["next"] is None:
            break
        if kind == "schedules":
            further = {f"after_{name}": value for name, value in page["next"].items()}
        else:
            further = {"after" if kind == "tasks" else "before": page["next"]}
    assert pages == [3, 3, 2]
    if kind == "workers":
        assert [worker["pid"] for worker in found] == list(range(8))[::-1]
    elif kind == "bulks":
        assert [bulk["id"] for bulk in found] == sorted({bulk["id"] for bulk in found}, reverse=True)
    elif kind == "tasks":
        assert [task["name"] for task in found] == sorted(names)
    else:
        assert sorted(schedule["owner"] for schedule in found) == sorted(names)
    # No page after a page that is exactly full.
    assert call(conn, kind, limit=8)["next"] is None


def test_the_names_of_tasks_are_read_from_few_of_many_schedules(conn: Connection) -> None:
    put_schedules(conn, "shop", 5000, "work")
    with conn.transaction(force_rollback=True):
        assert call(conn, "names")["tasks"] == ["work"]
        assert value(conn, "select pg_stat_get_xact_tuples_returned('stepwell.schedule_name'::regclass)") < 2000
        assert value(conn, "select pg_stat_get_xact_numscans('stepwell.schedule'::regclass)") == 0


def put_schedules(conn: Connection, owner: str, count: int, task: str) -> None:
    conn.execute(
        "insert into stepwell.schedule (id, owner, name, task, args, queue, rank, cron, tz, overlap, catchup, jitter,"
        " declared, declared_at, created_at) select stepwell.uuid7(), %s, 'tick' || n, %s, '{}', 'default', 0,"
        " '* * * * *', 'UTC', 'skip', 0, 0, false, now(), now() from generate_series(1, %s) as g (n)",
        (owner, task, count),
    )


def test_a_live_child_whose_children_have_ended_leads_to_them(conn: Connection) -> None:
    parent, child, lonely = put_live(conn, 3, "waiting")
    grandchild = put_failed_twice(conn, 1)[0]
    for job, key, its in ((parent, "a", child), (parent, "b", lonely), (child, "c", grandchild)):
        conn.execute(
            "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, child_id)"
            " values (%s, now(), 1, 1, 'child', %s, %s)",
            (job, key, its),
        )
    found = call(conn, "children", id=parent)
    assert {each["id"]: each["has_children"] for each in found} == {child: True, lonely: False}
    assert [each["id"] for each in call(conn, "children", id=child)] == [grandchild]


def put_live(conn: Connection, count: int, state: str, worker: str | None = None) -> list[str]:
    """Jobs in a state, the newest first."""
    rows = conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, worker_id, epoch, attempt)"
        " select stepwell.uuid7(), now(), now(), %s, 'many', 'many', '{}', %s::uuid, 1, 1 from generate_series(1, %s)"
        " returning id::text",
        (state, worker, count),
    )
    return [row[0] for row in rows][::-1]


@pytest.mark.parametrize("others", [12_000, 31_000])
def test_a_list_of_running_jobs_leaves_none_out_however_many_run(conn: Connection, others: int) -> None:
    first, last = "00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000001"
    older = put_live(conn, 3, "running", last)
    put_live(conn, others, "running", first)
    newer = put_live(conn, 3, "running", last)
    found = call(conn, "jobs", state="running", limit=2)
    assert [job["id"] for job in found["jobs"]] == newer[:2]
    found = call(conn, "jobs", state="running", limit=2, oldest_first=True)
    assert [job["id"] for job in found["jobs"]] == older[::-1][:2]
    found = call(conn, "jobs", state="running", worker_id=last)
    assert ([job["id"] for job in found["jobs"]], found["looked"]) == (newer + older, 6)
    # As a bulk operation does.
    ids = list[str]()
    before = None
    while True:
        found = call(conn, "jobs", state="running", ids_only=True, limit=10_000, milliseconds=5000, before=before)
        ids += found["ids"]
        before = found["looked_to"]
        if before is None:
            break
    assert (len(ids), len(set(ids)), ids[0], ids[-1]) == (others + 6, others + 6, newer[0], older[-1])


def test_a_frequent_state_is_searched_in_time_behind_many_newer_jobs(conn: Connection) -> None:
    blocked = put_live(conn, 10_001, "blocked")
    put_live(conn, 20_000, "ready")
    found = call(conn, "jobs", state="blocked", limit=1, milliseconds=1)
    assert (found["jobs"], 1 <= found["looked"] < 20_000) == ([], True)
    found = call(conn, "jobs", state="blocked", limit=1, before=found["looked_to"], milliseconds=9000)
    assert [job["id"] for job in found["jobs"]] == blocked[:1]
    # Of one queue, an index has them in order.
    assert call(conn, "jobs", state="blocked", queue="many", limit=1)["looked"] == 1


def test_succeeded_jobs_are_searched_in_time_behind_many_newer_jobs(conn: Connection) -> None:
    for state, count in (("succeeded", 1), ("failed", 20_000)):
        conn.execute(
            "insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank,"
            " state, task, queue, args) select stepwell.uuid7(), now() + interval '1 day', now(), now(), now(), 1, 1,"
            " 0, %s, %s, 'many', '{}' from generate_series(1, %s)",
            (state, state, count),
        )
    found = call(conn, "jobs", state="succeeded", milliseconds=1)
    assert (found["jobs"], 1 <= found["looked"] < 20_000) == ([], True)
    found = call(conn, "jobs", state="succeeded", before=found["looked_to"], milliseconds=9000)
    assert [job["task"] for job in found["jobs"]] == ["succeeded"]


SORTS: dict[str, Callable[[dict[str, Any]], float]] = {
    "due": lambda job: datetime.fromisoformat(job["run_at"]).timestamp(),
    "priority": lambda job: -job["priority"],
    "runtime": lambda job: -ran(job),
}


def ran(job: dict[str, Any]) -> float:
    at = datetime.fromisoformat
    return (at(job["finished_at"]) - at(job["claimed_at"])).total_seconds() if job["finished_at"] else 0


def put_scheduled(conn: Connection, count: int, state: str = "scheduled", queue: str = "many") -> None:
    """Jobs whose due time and priority have nothing to do with their age."""
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, rank, args)"
        " select stepwell.uuid7(), now() + n * 7919 %% 10007 * interval '1 second', now(), %s, 'many', %s,"
        " n * 31 %% 100, '{}' from generate_series(1, %s) as g (n)",
        (state, queue, count),
    )


def pages(conn: Connection, **given: Any) -> list[dict[str, Any]]:
    """All pages of a list in an order that is not by age."""
    found = call(conn, "jobs", limit=400, milliseconds=9000, **given)
    every = [found]
    while found["sorted"]["next"]:
        found = call(conn, "jobs", limit=400, milliseconds=9000, offset=found["sorted"]["next"], **given)
        every.append(found)
    return every


@pytest.mark.parametrize(("count", "looked"), [(300, 300), (12_000, 401)])
def test_jobs_in_the_order_of_their_due_time_or_priority_are_the_first_of_all(
    conn: Connection, count: int, looked: int
) -> None:
    put_scheduled(conn, count)
    put_scheduled(conn, count, "ready")
    for sort, state, queue in (("due", "scheduled", None), ("priority", "ready", "many")):
        every = pages(conn, state=state, queue=queue, sort=sort)
        jobs = [job for page in every for job in page["jobs"]]
        column = "run_at" if sort == "due" else "rank"
        of_all = conn.execute(
            f"select {column} from stepwell.job where state = %s order by {column} limit 1000".encode(), [state]
        ).fetchall()
        keys = [datetime.fromisoformat(job["run_at"]) if sort == "due" else -job["priority"] for job in jobs]
        assert keys == [row[0] for row in of_all]
        assert len({job["id"] for job in jobs}) == min(count, 1000)
        assert [page["sorted"]["whole"] for page in every] == [True] * len(every)
        # It says so if there are more than a list in this order has.
        assert every[-1]["sorted"]["more"] is (count > 1000)
        assert (every[0]["looked"], every[0]["looked_to"]) == (looked, None)


def test_running_jobs_are_sorted_by_the_time_for_which_they_run(conn: Connection) -> None:
    worker = "00000000-0000-0000-0000-000000000001"
    put_live(conn, 300, "running", worker)
    conn.execute("update stepwell.job set claimed_at = now() - random() * interval '1 day'")
    oldest = conn.execute("select id::text from stepwell.job order by claimed_at limit 5").fetchall()
    found = call(conn, "jobs", state="running", sort="runtime", limit=5)
    assert [job["id"] for job in found["jobs"]] == [row[0] for row in oldest]
    assert (found["sorted"]["whole"], found["sorted"]["next"]) == (True, 5)


def test_finished_jobs_are_sorted_within_the_newest_that_match_and_the_list_says_so(conn: Connection) -> None:
    conn.execute(
        "insert into stepwell.history (id, expires_at, finished_at, claimed_at, run_at, enqueued_at, epoch, attempt,"
        " rank, state, task, queue, args) select stepwell.uuid7(), now() + interval '1 day', now(),"
        " now() - n * 7919 % 10007 * interval '1 second', now(), now(), 1, 1, n % 7, 'succeeded', 'many', 'many',"
        " '{}' from generate_series(1, 2500) as g (n)"
    )
    # With time enough: by default, a busy machine may not find 500 jobs.
    newest = call(conn, "jobs", limit=500, milliseconds=9000)
    second = call(conn, "jobs", limit=500, milliseconds=9000, before=newest["looked_to"])
    window = {job["id"] for job in newest["jobs"] + second["jobs"]}
    for sort in ("runtime", "priority"):
        every = pages(conn, sort=sort)
        jobs = [job for page in every for job in page["jobs"]]
        assert {job["id"] for job in jobs} == window
        assert jobs == sorted(jobs, key=SORTS[sort])
        assert every[0]["sorted"] == {"by": sort, "whole": False, "over": 1000, "next": 400, "more": False}
        assert (every[0]["looked"], every[0]["looked_to"]) == (1000, second["looked_to"])
    # The next window has the older ones, and the last one has the rest.
    third = pages(conn, sort="runtime", before=second["looked_to"])
    assert not window & {job["id"] for page in third for job in page["jobs"]}
    last = call(conn, "jobs", sort="runtime", milliseconds=9000, before=third[0]["looked_to"])
    assert (last["sorted"]["over"], last["looked_to"]) == (500, None)


def test_a_walk_in_the_order_of_due_times_stops_in_time(conn: Connection) -> None:
    put_scheduled(conn, 30_000)
    # None matches, by filters that the index does not have.
    for given in ({"task": "rare"}, {"enqueued_before": "2020-01-01"}, {"queue": "rare"}):
        found = call(conn, "jobs", state="scheduled", sort="due", milliseconds=1, **given)
        assert (found["jobs"], 1 <= found["looked"] < 30_000, found["sorted"]["more"]) == ([], True, True)


def test_an_order_that_is_not_known_is_refused(conn: Connection) -> None:
    with pytest.raises(psycopg.Error, match="sort is up: it must be due, priority or runtime"):
        call(conn, "jobs", sort="up")


def value(conn: Connection, query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
