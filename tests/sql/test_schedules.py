"""Schedules in the database: what a tick does, and what it never does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from stepwell.calendar.schedule import DueSchedule, NewSchedule, Overlap, ScheduleInfo, Tick
from stepwell.calendar.timing import Cron, Interval
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.schedules import Fired
from stepwell.worker.upkeep.ticker import due_ticks, rewound
from tests.waiting import until

from . import calls
from .calls import Connection

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def clock(conn: Connection) -> None:
    go_to(conn, START)


def go_to(conn: Connection, at: datetime) -> None:
    calls.set_clock(conn, at.isoformat())


def put(
    conn: Connection,
    name: str = "beat",
    *,
    owner: str = "shop",
    overlap: Overlap = "allow",
    catchup: int = 1,
    jitter: float = 0.0,
    every: float = 60.0,
    task: str = "work",
    declared: bool = False,
    cron: str | None = None,
    regained_by: str | None = None,
) -> None:
    timing = Cron(cron) if cron else Interval(every)
    [now] = fetch(conn, queries.reads.clock())
    schedule = NewSchedule(name, task, '{"n": 1}', "default", 0, timing, overlap, catchup, jitter)
    nexts = [timing.after(now)]
    fetch(
        conn,
        queries.schedules.put_schedules(owner, [schedule], nexts, declared=declared, regained_by=regained_by),
    )


def look(conn: Connection) -> list[DueSchedule]:
    found = fetch(conn, queries.schedules.due_schedules([]))
    return [schedule for schedule in found if schedule.due_in is not None and schedule.due_in <= 0]


def fire(conn: Connection, due: list[DueSchedule] | None = None) -> Fired:
    due = look(conn) if due is None else due
    reckoned = [due_ticks(schedule) for schedule in due]
    return fetch(
        conn, queries.schedules.tick(due, [following for _, following in reckoned], [times for times, _ in reckoned])
    )[0]


def find(conn: Connection, name: str = "beat") -> ScheduleInfo:
    [found] = fetch(conn, queries.schedules.schedules("shop", name))
    return found


def ticks(conn: Connection, name: str = "beat") -> list[Tick]:
    return fetch(conn, queries.schedules.recent_ticks("shop", name, 100))[::-1]


def runs(conn: Connection) -> list[tuple[datetime, str]]:
    """The live runs: for which tick, and in which state."""
    rows = conn.execute("select scheduled_for, state::text from stepwell.jobs where finished_at is null order by 1, id")
    return [(at.astimezone(UTC), state) for at, state in rows]


def claim(conn: Connection) -> list[calls.Held]:
    return calls.claim(conn, calls.register_worker(conn))


def test_it_is_due_at_its_first_tick_and_not_before(conn: Connection) -> None:
    put(conn)
    assert find(conn).next_run_at == START + MINUTE
    go_to(conn, START + MINUTE - timedelta(microseconds=1))
    assert look(conn) == []
    go_to(conn, START + MINUTE)
    assert fire(conn).enqueued == 1
    assert runs(conn) == [(START + MINUTE, "ready")]
    schedule = find(conn)
    assert (schedule.last_run_at, schedule.next_run_at, schedule.live) == (START + MINUTE, START + 2 * MINUTE, 1)
    assert schedule.last_job_id == ticks(conn)[0].job_id


def test_a_tick_that_was_reckoned_too_early_does_not_count(conn: Connection) -> None:
    put(conn)
    [seen] = fetch(conn, queries.schedules.due_schedules([]))
    early = [START + MINUTE, START + 2 * MINUTE]
    assert fetch(conn, queries.schedules.tick([seen], [START + 3 * MINUTE], [early]))[0].enqueued == 0
    assert find(conn).next_run_at == START + MINUTE
    go_to(conn, START + MINUTE)
    assert fetch(conn, queries.schedules.tick([seen], [START + 2 * MINUTE], [early]))[0].enqueued == 1
    assert runs(conn) == [(START + MINUTE, "ready")]


def test_two_who_saw_the_same_tick_fire_it_once(conn: Connection, dsn: str) -> None:
    put(conn)
    go_to(conn, START + MINUTE)
    seen = look(conn)
    assert [fire(conn, seen).enqueued, fire(conn, seen).enqueued] == [1, 0]
    # At the same moment, too, and whatever became of the row that both compare with.
    go_to(conn, START + 2 * MINUTE)
    seen = look(conn)
    with psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor() as threads:
        with conn.transaction():
            first = fire(conn, seen)
            second = threads.submit(fire, other, seen)
            until(lambda: calls.blocked(conn, other) or second.done())
        # The second waits for a quarter of a second at most, and then leaves it to the next look.
        assert (first.enqueued, second.result().enqueued) == (1, 0)
    conn.execute("update stepwell.schedule set next_tick_at = %s", (START + 2 * MINUTE,))
    assert fire(conn).enqueued == 0
    assert len(runs(conn)) == 2


@pytest.mark.parametrize("overlap", ["allow", "replace"])
def test_a_tick_that_was_forgotten_is_not_run_again(conn: Connection, overlap: Overlap) -> None:
    put(conn, overlap=overlap)
    go_to(conn, find(conn).next_run_at or START)
    assert fire(conn).enqueued == 1
    ran = runs(conn)
    assert conn.execute("select stepwell.prune_ticks(0)").fetchone() == (1,)
    # As by a definition that is changed after the clock was set back.
    conn.execute("update stepwell.schedule set next_tick_at = last_tick_at")
    assert fire(conn).enqueued == 0
    assert runs(conn) == ran


def test_a_run_that_is_triggered_takes_no_time_that_was_forgotten(conn: Connection) -> None:
    put(conn)
    for _ in range(2):
        conn.execute("select stepwell.trigger_schedule('shop', 'beat')")
        conn.execute("select stepwell.prune_ticks(0)")
    assert len({at for at, _ in runs(conn)}) == 2


def test_what_was_reckoned_long_ago_is_reckoned_anew(conn: Connection) -> None:
    put(conn)
    go_to(conn, START + MINUTE)
    seen = look(conn)
    reckoned = [due_ticks(schedule) for schedule in seen]
    stale = queries.schedules.tick(seen, [following for _, following in reckoned], [times for times, _ in reckoned])
    go_to(conn, START + 30 * MINUTE)  # the worker was stopped in between
    assert fetch(conn, stale)[0].enqueued == 0
    assert fire(conn).enqueued == 1
    assert runs(conn) == [(START + 30 * MINUTE, "ready")]


def test_ticks_of_an_older_definition_are_refused(conn: Connection) -> None:
    put(conn)
    go_to(conn, START + MINUTE)
    seen = look(conn)
    put(conn, every=60.0, task="other")
    assert fire(conn, seen).enqueued == 0
    assert fire(conn).enqueued == 1


@pytest.mark.parametrize(
    ("catchup", "run"), [(0, [10]), (1, [10]), (3, [8, 9, 10]), (99, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])]
)
def test_of_missed_ticks_the_newest_are_run(conn: Connection, catchup: int, run: list[int]) -> None:
    put(conn, catchup=catchup)
    go_to(conn, START + 10 * MINUTE + timedelta(seconds=59))
    assert fire(conn).enqueued == len(run)
    assert [at for at, _ in runs(conn)] == [START + n * MINUTE for n in run]
    assert find(conn).next_run_at == START + 11 * MINUTE


def test_without_catchup_a_tick_that_is_more_than_a_minute_late_is_skipped(conn: Connection) -> None:
    put(conn, every=3600.0, catchup=0)
    go_to(conn, START + timedelta(hours=3, minutes=2))
    assert fire(conn).enqueued == 0
    [tick] = ticks(conn)
    assert (tick.at, tick.skipped, tick.job_id) == (START + timedelta(hours=3), "missed", None)
    assert find(conn).next_run_at == START + timedelta(hours=4)


def test_overlap_skip_enqueues_nothing_while_a_run_is_live(conn: Connection) -> None:
    put(conn, overlap="skip")
    for n in (1, 2):
        go_to(conn, START + n * MINUTE)
        fire(conn)
    assert runs(conn) == [(START + MINUTE, "ready")]
    assert [tick.skipped for tick in ticks(conn)] == [None, "overlap"]
    calls.finish(conn, claim(conn))
    go_to(conn, START + 3 * MINUTE)
    assert fire(conn).enqueued == 1


def test_missed_ticks_run_one_after_the_other_unless_overlap_is_allowed(conn: Connection) -> None:
    put(conn, overlap="skip", catchup=3)
    go_to(conn, START + 3 * MINUTE)
    assert fire(conn).enqueued == 3
    assert [state for _, state in runs(conn)] == ["ready", "blocked", "blocked"]


def test_overlap_queue_lets_the_next_go_when_the_one_before_has_ended(conn: Connection) -> None:
    put(conn, overlap="queue")
    for n in (1, 2, 3, 4):
        go_to(conn, START + n * MINUTE)
        assert fire(conn).enqueued == 1
    assert [state for _, state in runs(conn)] == ["ready", "blocked", "blocked", "blocked"]
    # However it ends: done, failed for good, cancelled while it waits, or while it runs.
    calls.finish(conn, claim(conn))
    assert [state for _, state in runs(conn)] == ["ready", "blocked", "blocked"]
    held = claim(conn)
    calls.fail(conn, held, delay=0.0)
    assert [state for _, state in runs(conn)] == ["ready", "blocked", "blocked"]
    calls.fail(conn, claim(conn), delay=None)
    assert runs(conn) == [(START + 3 * MINUTE, "ready"), (START + 4 * MINUTE, "blocked")]
    (waiting,) = conn.execute("select id::text from stepwell.jobs where state = 'ready'").fetchall()
    calls.cancel(conn, [waiting[0]])
    assert runs(conn) == [(START + 4 * MINUTE, "ready")]


def test_a_run_whose_worker_died_does_not_block_for_ever(conn: Connection) -> None:
    put(conn, overlap="queue")
    for n in (1, 2):
        go_to(conn, START + n * MINUTE)
        fire(conn)
    dead = calls.register_worker(conn, tasks={"work": {"max_attempts": 1, "keep_failed": 60}}, lease=1)
    calls.claim(conn, dead)
    go_to(conn, START + 2 * MINUTE + timedelta(seconds=2))
    assert len(calls.rescue(conn)) == 1
    assert runs(conn) == [(START + 2 * MINUTE, "ready")]


def test_overlap_replace_cancels_what_waits_and_waits_for_what_runs(conn: Connection) -> None:
    put(conn, overlap="replace")
    go_to(conn, START + MINUTE)
    fire(conn)
    go_to(conn, START + 2 * MINUTE)
    assert fire(conn).enqueued == 1
    assert runs(conn) == [(START + 2 * MINUTE, "ready")]
    held = claim(conn)
    go_to(conn, START + 3 * MINUTE)
    assert fire(conn).enqueued == 1
    assert runs(conn) == [(START + 2 * MINUTE, "running"), (START + 3 * MINUTE, "blocked")]
    assert calls.one(conn.execute("select cancelling from stepwell.jobs where state = 'running'"))
    calls.finish(conn, held, state="cancelled")
    assert runs(conn) == [(START + 3 * MINUTE, "ready")]


def test_the_end_of_a_run_and_the_next_tick_see_each_other(conn: Connection, dsn: str) -> None:
    put(conn, overlap="queue")
    go_to(conn, START + MINUTE)
    fire(conn)
    held = claim(conn)
    go_to(conn, START + 2 * MINUTE)
    with psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor() as threads:
        with conn.transaction():
            fire(conn)  # puts the next run in line
            ending = threads.submit(calls.finish, other, held)  # and cannot see it yet
            until(lambda: calls.blocked(conn, other))
        ending.result()
    assert runs(conn) == [(START + 2 * MINUTE, "ready")]


def test_a_tick_and_runs_that_end_do_not_wait_for_each_other(conn: Connection, dsn: str) -> None:
    put(conn, "first", overlap="queue")
    put(conn, "second", overlap="replace")
    go_to(conn, START + MINUTE)
    fire(conn)
    held = claim(conn)
    go_to(conn, START + 2 * MINUTE)
    seen = look(conn)
    with (
        psycopg.connect(dsn, autocommit=True) as ticking,
        psycopg.connect(dsn, autocommit=True) as ending,
        ThreadPoolExecutor() as threads,
    ):
        ticking.execute(
            "create function pg_temp.dawdle() returns trigger language plpgsql as $$ begin"
            " while not pg_try_advisory_xact_lock(1) loop perform pg_sleep(0.002); end loop; return new; end $$"
        )
        ticking.execute("create trigger dawdle before insert on stepwell.job execute function pg_temp.dawdle()")
        conn.execute("select pg_advisory_lock(1)")
        ticked = threads.submit(fire, ticking, seen)
        # Not by whether the schedules can be locked: the tick leaves out those that another session has locked.
        until(lambda: calls.sleeping(conn, ticking))
        ended = threads.submit(calls.finish, ending, held)  # of both, while the first is being fired
        until(lambda: calls.blocked(conn, ending))
        conn.execute("select pg_advisory_unlock(1)")
        assert (ticked.result().enqueued, ticked.result().left_why) == (2, [])
        assert ended.result() == []
        ticking.execute("drop trigger dawdle on stepwell.job")
    assert [state for _, state in runs(conn)] == ["ready", "ready"]


def test_who_comes_too_late_to_fire_locks_nothing(conn: Connection, dsn: str) -> None:
    put(conn, overlap="replace")
    go_to(conn, START + MINUTE)
    seen = look(conn)
    fire(conn, seen)
    with psycopg.connect(dsn) as late:
        assert fire(late, seen).enqueued == 0
        assert len(conn.execute("select from stepwell.job for update nowait").fetchall()) == 1
        assert len(conn.execute("select from stepwell.schedule for update nowait").fetchall()) == 1


def test_the_end_of_a_run_does_not_wait_for_whoever_holds_its_schedule(conn: Connection, dsn: str) -> None:
    put(conn, overlap="queue")
    for n in (1, 2):
        go_to(conn, START + n * MINUTE)
        fire(conn)
    held = claim(conn)
    with psycopg.connect(dsn) as caller:  # somebody's own transaction, which may take its time
        fetch(caller, queries.schedules.trigger_schedule("shop", "beat"))
        calls.finish(conn, held)
        assert [state for _, state in runs(conn)] == ["blocked"]
    assert sorted(state for _, state in runs(conn)) == ["blocked", "ready"]
    calls.finish(conn, claim(conn))
    assert [state for _, state in runs(conn)] == ["ready"]


def test_a_run_that_ends_and_a_cancel_of_the_next_do_not_wait_for_each_other(conn: Connection, dsn: str) -> None:
    put(conn, overlap="queue")
    for n in (1, 2, 3):
        go_to(conn, START + n * MINUTE)
        fire(conn)
    held = claim(conn)
    (waiting, *_), *_ = conn.execute(
        "select id::text from stepwell.jobs where state = 'blocked' order by scheduled_for"
    ).fetchall()
    with psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor() as threads, conn.transaction():
        conn.execute("select from stepwell.job where id = %s::uuid for update", (waiting,))  # a cancel under way
        ending = threads.submit(calls.finish, other, held)
        ending.result(timeout=10)
        calls.cancel(conn, [waiting])
    assert runs(conn) == [(START + 3 * MINUTE, "ready")]


def test_a_run_that_was_left_in_line_is_found_by_upkeep(conn: Connection) -> None:
    put(conn, overlap="queue")
    for n in (1, 2):
        go_to(conn, START + n * MINUTE)
        fire(conn)
    conn.execute("delete from stepwell.job where state = 'ready'")
    assert fetch(conn, queries.upkeep.admit_stranded()) == [1]
    assert runs(conn) == [(START + 2 * MINUTE, "ready")]


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
def test_a_run_that_is_retried_waits_for_the_one_that_is_live(conn: Connection, overlap: Overlap) -> None:
    put(conn, overlap=overlap)
    worker = calls.register_worker(conn, lease=1e9)
    ended: list[str] = []
    for n in (1, 2):
        go_to(conn, START + n * MINUTE)
        fire(conn)
        [job] = calls.claim(conn, worker)
        calls.fail(conn, [job], delay=None, keep=calls.DAY)
        ended.append(job.id)
    go_to(conn, START + 3 * MINUTE)
    fire(conn)
    [live] = calls.claim(conn, worker)
    assert calls.retry(conn, ended) == ended
    assert [calls.state(conn, job_id) for job_id in ended] == ["blocked", "blocked"]
    # One after the other, the earliest tick first.
    calls.finish(conn, [live])
    for job_id in ended:
        [job] = calls.claim(conn, worker)
        assert job.id == job_id
        calls.finish(conn, [job])


def test_a_run_that_is_retried_alone_is_ready_at_once(conn: Connection) -> None:
    put(conn, overlap="skip")
    put(conn, "free", overlap="allow")
    put(conn, "gone", overlap="skip")
    worker = calls.register_worker(conn, lease=1e9)
    go_to(conn, START + MINUTE)
    fire(conn)
    held = calls.claim(conn, worker)
    calls.fail(conn, held, delay=None, keep=calls.DAY)
    conn.execute("delete from stepwell.schedule where name = 'gone'")
    assert sorted(calls.retry(conn, calls.ids(held))) == sorted(calls.ids(held))
    assert len(calls.claim(conn, worker)) == 3


def test_jitter_puts_a_job_off_but_not_its_tick(conn: Connection) -> None:
    put(conn, jitter=30.0)
    go_to(conn, START + MINUTE)
    fire(conn)
    (row,) = conn.execute("select scheduled_for, run_at, state::text from stepwell.jobs").fetchall()
    assert row[0] == START + MINUTE
    assert START + MINUTE <= row[1] <= START + MINUTE + timedelta(seconds=30)
    assert row[2] == "scheduled"


def test_a_schedule_that_cannot_be_fired_does_not_hold_up_the_others(conn: Connection) -> None:
    put(conn, "good")
    put(conn, "bad", task="forbidden")
    conn.execute(
        "create or replace function pg_temp.refuse() returns trigger language plpgsql as"
        " $$ begin if new.task = 'forbidden' then raise exception 'not this one'; end if; return new; end $$"
    )
    conn.execute("create trigger refuse before insert on stepwell.job for each row execute function pg_temp.refuse()")
    try:
        go_to(conn, START + MINUTE)
        fired = fire(conn)
    finally:
        conn.execute("drop trigger refuse on stepwell.job")
    assert (fired.enqueued, fired.left_ids, fired.left_why) == (1, [str(find(conn, "bad").id)], ["not this one"])
    assert find(conn, "bad").next_run_at == START + MINUTE
    assert fire(conn).enqueued == 1


def test_a_definition_that_is_put_again_keeps_its_next_tick_unless_its_timing_changed(conn: Connection) -> None:
    put(conn)
    go_to(conn, START + 5 * MINUTE)
    put(conn, task="other")  # as when a worker starts after a while
    assert find(conn).next_run_at == START + MINUTE
    version = find(conn).version
    put(conn, task="other")
    assert find(conn).version == version
    put(conn, every=3600.0)
    assert find(conn).next_run_at == START + timedelta(hours=1)


def test_a_paused_schedule_rests_and_what_was_due_meanwhile_is_not_made_up_for(conn: Connection) -> None:
    put(conn)
    assert fetch(conn, queries.schedules.pause_schedule("shop", "beat")) == [True]
    go_to(conn, START + 5 * MINUTE)
    put(conn)  # a worker that starts does not wake it
    assert look(conn) == []
    schedule = find(conn)
    assert (schedule.next_run_at, schedule.paused_at) == (None, START)
    assert fetch(conn, queries.schedules.resume_schedule(schedule.id, schedule.version - 1, START + 6 * MINUTE)) == [
        False
    ]
    assert fetch(conn, queries.schedules.resume_schedule(schedule.id, schedule.version, START + 6 * MINUTE)) == [True]
    assert find(conn).next_run_at == START + 6 * MINUTE
    assert fetch(conn, queries.schedules.pause_schedule("shop", "none")) == [False]


def test_a_run_that_is_triggered_comes_out_of_turn(conn: Connection) -> None:
    put(conn, overlap="skip")
    [job_id] = fetch(conn, queries.schedules.trigger_schedule("shop", "beat"))
    assert job_id is not None
    assert runs(conn) == [(START, "ready")]
    [tick] = ticks(conn)
    assert (str(tick.job_id), tick.triggered) == (job_id, True)
    assert find(conn).next_run_at == START + MINUTE
    go_to(conn, START + MINUTE)
    assert fire(conn).enqueued == 0  # it is a live run like any other
    assert fetch(conn, queries.schedules.trigger_schedule("shop", "none")) == [None]


def test_runs_that_are_triggered_at_one_time_take_nobodys_place(conn: Connection) -> None:
    put(conn)
    go_to(conn, START + MINUTE)
    for _ in range(3):
        fetch(conn, queries.schedules.trigger_schedule("shop", "beat"))
    assert fire(conn).enqueued == 1
    found = ticks(conn)
    assert len({tick.job_id for tick in found}) == 4
    assert [tick.at for tick in found if not tick.triggered] == [START + MINUTE]


def test_a_run_that_is_retried_keeps_its_tick(conn: Connection) -> None:
    put(conn)
    go_to(conn, START + MINUTE)
    fire(conn)
    held = claim(conn)
    calls.fail(conn, held, delay=None)
    go_to(conn, START + 2 * MINUTE)
    calls.retry(conn, [held[0].id])
    assert runs(conn) == [(START + MINUTE, "ready")]
    assert find(conn).live == 1


def test_a_schedule_is_deleted_with_its_ticks_but_its_jobs_stay(conn: Connection) -> None:
    put(conn)
    put(conn, "other", owner="bakery")
    go_to(conn, START + MINUTE)
    fire(conn)
    assert fetch(conn, queries.schedules.remove_schedules("shop", ["beat", "other"])) == [["beat"]]
    assert len(runs(conn)) == 2
    assert calls.one(conn.execute("select count(*) from stepwell.tick")) == 1
    assert [schedule.owner for schedule in fetch(conn, queries.schedules.schedules())] == ["bakery"]


def test_what_stands_in_code_is_not_changed_from_elsewhere(conn: Connection) -> None:
    put(conn, declared=True)
    with pytest.raises(psycopg.Error, match="is declared in code") as refused:
        put(conn, task="other")
    assert refused.value.sqlstate == "SW002"


def register(
    conn: Connection,
    *schedules: str,
    owner: str = "shop",
    grace: float | None = 600.0,
    task: str = "work",
    lease: float = 3600.0,
    age: float = 0.0,
) -> str:
    tasks = f'{{"{task}": {{}}}}'
    query = queries.fleet.register_worker("h", 1, "v", ["default"], tasks, 1, lease, age, None, owner, schedules, grace)
    return fetch(conn, query)[0]


def stale(conn: Connection, at: timedelta) -> list[str]:
    go_to(conn, START + at)
    return fetch(conn, queries.schedules.remove_stale_schedules())[0]


def test_what_no_live_workers_code_has_is_removed_after_a_grace(conn: Connection) -> None:
    for name in ("old", "kept"):
        put(conn, name, declared=True)
    put(conn, "made at run time")
    old = register(conn, "old", "kept")
    register(conn, "kept")
    # As long as a worker of the old deploy lives, both stay, for however long the deploy takes.
    assert stale(conn, timedelta(minutes=30)) == []
    calls.unregister_worker(conn, old)
    assert stale(conn, timedelta(minutes=39)) == []
    assert stale(conn, timedelta(minutes=40)) == ["old of shop"]
    assert [schedule.name for schedule in fetch(conn, queries.schedules.schedules())] == ["kept", "made at run time"]


def test_a_roll_back_within_the_grace_finds_its_schedules_as_they_were(conn: Connection) -> None:
    put(conn, "old", declared=True)
    new = register(conn)
    assert stale(conn, timedelta(minutes=9)) == []
    calls.unregister_worker(conn, new)
    register(conn, "old")
    assert stale(conn, timedelta(minutes=11)) == []
    assert stale(conn, timedelta(minutes=59)) == []


def test_two_services_never_touch_each_others_schedules(conn: Connection) -> None:
    put(conn, "nightly", owner="shop", declared=True)
    put(conn, "nightly", owner="bakery", declared=True)
    register(conn, owner="bakery", grace=0.0)
    assert stale(conn, timedelta(minutes=1)) == ["nightly of bakery"]
    assert [schedule.owner for schedule in fetch(conn, queries.schedules.schedules())] == ["shop"]


def test_a_service_that_keeps_removes_nothing_and_nor_does_nobody(conn: Connection) -> None:
    put(conn, declared=True)
    assert stale(conn, timedelta(days=1)) == []
    register(conn, grace=None)
    assert stale(conn, timedelta(days=1, minutes=30)) == []


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "replace"])
def test_a_tick_that_is_named_twice_is_run_once(conn: Connection, overlap: Overlap) -> None:
    put(conn, overlap=overlap)
    go_to(conn, START + MINUTE)
    [due] = look(conn)
    [at], following = due_ticks(due)
    assert fetch(conn, queries.schedules.tick([due], [following], [[at, at, at]]))[0].enqueued == 1
    assert runs(conn) == [(at, "ready")]


def test_only_the_newest_ticks_are_kept(conn: Connection) -> None:
    put(conn, catchup=50)
    go_to(conn, START + 50 * MINUTE)
    fire(conn)
    rows: Any = conn.execute("select stepwell.prune_ticks(10), stepwell.prune_ticks(10)").fetchone()
    assert rows == (40, 0)
    assert [tick.at for tick in ticks(conn)] == [START + n * MINUTE for n in range(41, 51)]


def rewind(conn: Connection) -> int:
    """What the ticker does now and then."""
    found = [(schedule, rewound(schedule)) for schedule in fetch(conn, queries.schedules.schedule_times(None))]
    wrong = [(schedule, following) for schedule, following in found if following is not None]
    return fetch(
        conn, queries.schedules.rewind_schedules([each for each, _ in wrong], [following for _, following in wrong])
    )[0]


def test_what_was_made_or_resumed_while_the_clock_was_ahead_is_due_when_it_should_be(conn: Connection) -> None:
    put(conn, "resting")
    fetch(conn, queries.schedules.pause_schedule("shop", "resting"))
    go_to(conn, START + timedelta(days=365))
    put(conn, "made")
    resting = find(conn, "resting")
    fetch(conn, queries.schedules.resume_schedule(resting.id, resting.version, START + timedelta(days=365) + MINUTE))
    put(conn, "ended")
    conn.execute("update stepwell.schedule set next_tick_at = null where name = 'ended'")  # as in the last year of all
    go_to(conn, START)
    assert (rewind(conn), rewind(conn)) == (3, 0)
    assert {find(conn, name).next_run_at for name in ("resting", "made", "ended")} == {START + MINUTE}


@pytest.mark.parametrize("wrong", ["infinity", "-infinity", "10500-01-01", "0044-03-15 BC"])
def test_nothing_is_set_back_to_a_time_that_no_schedule_can_have(conn: Connection, wrong: str) -> None:
    put(conn)
    one = find(conn)
    rewound = conn.execute(
        "select stepwell.rewind_schedules(array[%s]::uuid[], array[%s], array[%s], array[%s]::timestamptz[])",
        (one.id, one.version, one.next_run_at, wrong),
    )
    assert rewound.fetchone() == (0,)
    assert find(conn) == one


def test_somebodys_open_transaction_holds_up_no_other_schedule(conn: Connection, dsn: str) -> None:
    for n in range(40):
        put(conn, f"held {n:02}")
    put(conn, "free")
    go_to(conn, START + MINUTE)
    with psycopg.connect(dsn) as caller:
        for n in range(40):
            fetch(caller, queries.schedules.pause_schedule("shop", f"held {n:02}"))
        fired = fire(conn)
        assert (fired.enqueued, len(fired.left_ids), set(fired.left_why)) == (1, 40, {None})
        caller.rollback()
    assert fire(conn).enqueued == 40


@pytest.mark.parametrize("wrong", ["infinity", "-infinity", "10500-01-01", "0044-03-15 BC"])
def test_a_time_that_python_cannot_reckon_with_does_not_get_in(conn: Connection, wrong: str) -> None:
    put(conn)
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InvalidParameterValue)):
        conn.execute("update stepwell.schedule set next_tick_at = %s::timestamptz", (wrong,))
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InvalidParameterValue)):
        put(conn, "many", catchup=3_000_000)


def test_after_a_clock_that_was_ahead_is_set_back_all_goes_on_and_no_tick_runs_twice(conn: Connection) -> None:
    put(conn)
    go_to(conn, START + MINUTE)
    fire(conn)
    assert rewind(conn) == 0
    go_to(conn, START + 60 * MINUTE)
    assert fire(conn).enqueued == 1
    go_to(conn, START + 90 * timedelta(seconds=1))
    assert look(conn) == []
    assert (rewind(conn), fire(conn).enqueued, rewind(conn)) == (1, 0, 0)
    assert find(conn).next_run_at == START + 2 * MINUTE
    for n in range(2, 62):
        go_to(conn, START + n * MINUTE)
        assert fire(conn).enqueued == (n != 60)
        assert rewind(conn) == 0
    assert [at for at, _ in runs(conn)] == [START + n * MINUTE for n in range(1, 62)]


def test_a_clock_that_is_set_back_beyond_the_oldest_tick_on_record_fires_none_again(conn: Connection) -> None:
    put(conn, catchup=20)
    go_to(conn, START + 20 * MINUTE)
    fire(conn)
    conn.execute("select stepwell.prune_ticks(5)")
    go_to(conn, START + 10 * MINUTE)
    assert (rewind(conn), look(conn), rewind(conn)) == (1, [], 0)
    for n in range(11, 21):
        go_to(conn, START + n * MINUTE)
        assert fire(conn).enqueued == 0
    go_to(conn, START + 21 * MINUTE)
    assert fire(conn).enqueued == 1
    assert [at for at, _ in runs(conn)] == [START + n * MINUTE for n in range(1, 22)]


def test_those_that_the_caller_leaves_out_do_not_hide_the_rest(conn: Connection) -> None:
    for n in range(150):
        put(conn, f"broken {n}")
    go_to(conn, START + timedelta(seconds=1))
    put(conn, "good", every=120.0)
    go_to(conn, START + 2 * MINUTE)
    broken = [str(schedule.id) for schedule in fetch(conn, queries.schedules.schedules()) if schedule.name != "good"]
    assert [schedule.name for schedule in fetch(conn, queries.schedules.due_schedules(broken))] == ["good"]


def test_a_schedule_that_no_row_can_hold_is_refused_in_so_many_words(conn: Connection) -> None:
    good = (
        "'o', false, '{n}', '{t}', '{\"{}\"}', '{q}', '{0}', '{null}', '{null}', '{60}', '{skip}', '{1}', '{0}',"
        " '{now}'"
    )
    for right, wrong in [
        ("false", "null"), ("'{t}'", "'{null}'"), ("{skip}", "{never}"), ("{60}", "{-1}"), ("'{q}'", "'{}'"),
        ("{n}", "{n,n}"), ("{now}", "{infinity}"),
    ]:  # fmt: skip
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"stepwell: .*schedule.* is not valid"):
            conn.execute(f"select stepwell.put_schedules({good.replace(right, wrong)})".encode())
    conn.execute(f"select stepwell.put_schedules({good})".encode())


def test_a_worker_that_regains_its_lease_creates_missing_schedules_and_changes_none(conn: Connection) -> None:
    put(conn, "beat", declared=True, cron="0 5 * * *")
    before = find(conn)
    put(conn, "beat", declared=True, regained_by=register(conn, "beat", "missing", age=60))
    put(conn, "missing", declared=True, regained_by=register(conn, "beat", "missing", age=60))
    assert find(conn) == before
    assert find(conn, "missing").next_run_at == START + MINUTE


@pytest.mark.parametrize(
    ("other", "comes_back"),
    [
        pytest.param({}, False, id="removed by newer code"),
        pytest.param({"age": 120}, True, id="not yet in older code"),
        pytest.param({"lease": 0}, True, id="the newer code was rolled back"),
        pytest.param({"task": "another"}, True, id="another service of that name"),
        pytest.param({"owner": "another"}, True, id="another app"),
    ],
)
def test_a_schedule_that_newer_code_has_removed_does_not_come_back_with_a_lease(
    conn: Connection, other: dict[str, Any], comes_back: bool
) -> None:
    register(conn, "kept", **other)
    register(conn, "kept", "beat")  # of the same code as the one below, and later
    mine = register(conn, "kept", "beat", age=60)
    for name in ("kept", "beat"):
        put(conn, name, declared=True, regained_by=mine)
    names = [schedule.name for schedule in fetch(conn, queries.schedules.schedules("shop"))]
    assert names == (["beat", "kept"] if comes_back else ["kept"])


def test_a_schedule_whose_new_name_another_session_creates_does_not_stop_the_other_renames(
    conn: Connection, dsn: str
) -> None:
    for name in ("first", "second", "third"):
        put(conn, name, task=name)
    with psycopg.connect(dsn) as other, ThreadPoolExecutor() as pool:
        put(other, "new second")  # not committed
        renamed = pool.submit(rename, conn, "first", "second", "third")
        until(lambda: calls.blocked(other, conn))
        other.commit()
        renamed.result()
    found = fetch(conn, queries.schedules.schedules("shop"))
    assert sorted((schedule.name, schedule.task) for schedule in found) == [
        ("new first", "first"), ("new second", "work"), ("new third", "third"), ("second", "second"),
    ]  # fmt: skip


def test_renames_lock_schedules_in_the_order_of_their_ids(conn: Connection, dsn: str) -> None:
    for name in ("b", "a"):  # the order of their ids, and not that of their names
        put(conn, name, task=name)
    with psycopg.connect(dsn) as other, ThreadPoolExecutor() as pool:
        other.execute("select from stepwell.schedule s where s.name = 'b' for update")
        renamed = pool.submit(rename, conn, "a", "b")
        until(lambda: calls.blocked(other, conn))
        # It holds no other while it waits for the first.
        other.execute("select from stepwell.schedule s where s.name = 'a' for update nowait")
        other.commit()
        renamed.result()
    assert {schedule.name for schedule in fetch(conn, queries.schedules.schedules("shop"))} == {"new a", "new b"}


def rename(conn: Connection, *names: str) -> None:
    new = [f"new {name}" for name in names]
    fetch(conn, queries.schedules.rename_schedules("shop", names, new, declared=False))
