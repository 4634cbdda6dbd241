"""Groups of failures: counted in the transaction of the failure, without waiting for each other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from . import calls
from .calls import DAY, Connection, Held

FRAME = "shop.mail:send"


def claimed(conn: Connection, count: int = 1, task: str = "work") -> list[Held]:
    worker = calls.register_worker(conn)
    for _ in range(count):
        calls.enqueue(conn, task)
    return calls.claim(conn, worker, tasks=[task])


def fail(
    conn: Connection,
    held: Sequence[Held],
    *,
    types: Sequence[str] = ("ValueError",),
    frames: Sequence[str | None] = (FRAME,),
    delay: float | None = None,
    keep: float = DAY,
) -> None:
    count = len(held)
    conn.execute(
        "select stepwell.fail(%s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::double precision[], %s::integer[], %s::double precision[], _frames => %s::text[])",
        (
            calls.ids(held),
            calls.epochs(held),
            ["error"] * count,
            [types[k % len(types)] for k in range(count)],
            [f"message {k}" for k in range(count)],
            ["Traceback"] * count,
            [delay] * count,
            [3] * count,
            [keep] * count,
            [frames[k % len(frames)] for k in range(count)],
        ),
    )


def groups(conn: Connection, **options: Any) -> list[dict[str, Any]]:
    given = ", ".join(f"_{name} => %({name})s" for name in options)
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(f"select * from stepwell.list_failures({given})", options).fetchall()  # pyright: ignore[reportArgumentType, reportCallIssue]


def fold(conn: Connection) -> int:
    return calls.one(conn.execute("select stepwell.fold_failures()"))


def set_state(conn: Connection, group: dict[str, Any], state: str) -> list[Any]:
    return calls.one(conn.execute("select stepwell.set_failures(%s, %s)", ([group["fingerprint"]], state)))


def test_failures_are_grouped_by_task_type_and_frame(conn: Connection) -> None:
    fail(conn, claimed(conn, 3))
    fail(conn, claimed(conn), types=["KeyError"])
    fail(conn, claimed(conn), frames=["shop.mail:read"])
    fail(conn, claimed(conn, task="other"))
    found = {(group["task"], group["type"], group["frame"]): group["count"] for group in groups(conn)}
    assert found == {
        ("work", "ValueError", FRAME): 3,
        ("work", "KeyError", FRAME): 1,
        ("work", "ValueError", "shop.mail:read"): 1,
        ("other", "ValueError", FRAME): 1,
    }


def test_a_worker_of_the_previous_version_sends_no_frame_and_is_grouped_by_type(conn: Connection) -> None:
    calls.fail(conn, claimed(conn, 2))
    [group] = groups(conn)
    assert (group["type"], group["frame"], group["count"]) == ("ValueError", None, 2)


def test_counts_are_the_same_before_and_after_they_are_folded(conn: Connection) -> None:
    for _ in range(3):
        fail(conn, claimed(conn, 2))
    [before] = groups(conn)
    assert (before["count"], before["hours"][-1], sum(before["hours"])) == (6, 6, 6)
    assert fold(conn) == 3
    assert fold(conn) == 0
    [after] = groups(conn)
    assert (after["count"], after["hours"], after["first_at"]) == (6, before["hours"], before["first_at"])
    assert after["last_at"] == before["last_at"] > after["first_at"]


def test_a_resolved_group_is_opened_by_its_next_failure_and_remembers_it(conn: Connection) -> None:
    fail(conn, claimed(conn))
    [group] = groups(conn)
    assert len(set_state(conn, group, "resolved")) == 1
    assert set_state(conn, group, "resolved") == []
    fold(conn)  # what failed before does not open it
    [resolved] = groups(conn)
    assert (resolved["state"], resolved["reopened"]) == ("resolved", 0)
    fail(conn, claimed(conn))
    [again] = groups(conn)
    assert (again["state"], again["reopened"]) == ("open", 1)
    assert again["reopened_at"] > again["state_at"]
    fold(conn)
    assert [(g["state"], g["reopened"], g["count"]) for g in groups(conn)] == [("open", 1, 2)]


def test_an_ignored_group_stays_ignored_and_is_counted(conn: Connection) -> None:
    fail(conn, claimed(conn))
    set_state(conn, groups(conn)[0], "ignored")
    fail(conn, claimed(conn))
    fold(conn)
    [group] = groups(conn)
    assert (group["state"], group["reopened"], group["count"]) == ("ignored", 0, 2)
    assert groups(conn, state="open") == []


def test_a_group_that_a_person_has_locked_delays_no_failure(conn: Connection, dsn: str) -> None:
    fail(conn, claimed(conn))
    [group] = groups(conn)
    set_state(conn, group, "resolved")
    with psycopg.connect(dsn) as person:
        person.execute("select from stepwell.failure_group for update")
        conn.execute("set lock_timeout = '100ms'")
        fail(conn, claimed(conn))
        assert fold(conn) == 0
        # It is shown as it will be.
        [shown] = groups(conn, state="open")
        assert (shown["reopened"], shown["count"]) == (1, 2)
        assert groups(conn, state="resolved") == []
    assert fold(conn) == 2
    [opened] = groups(conn)
    assert (opened["state"], opened["reopened"], opened["count"]) == ("open", 1, 2)


def test_failures_of_a_locked_group_do_not_hide_those_behind_them(conn: Connection, dsn: str) -> None:
    fail(conn, claimed(conn))
    fail(conn, claimed(conn), types=["KeyError"])
    fold(conn)
    with psycopg.connect(dsn) as person:
        person.execute("select from stepwell.failure_group where type = 'ValueError' for update")
        for type_name in ("ValueError", "ValueError", "ValueError", "KeyError"):
            fail(conn, claimed(conn), types=[type_name])
        assert calls.one(conn.execute("select stepwell.fold_failures(2)")) == 1
        assert calls.one(conn.execute("select count(*) from stepwell.failure_tally")) == 3
    assert calls.one(conn.execute("select stepwell.fold_failures(2)")) == 2
    assert fold(conn) == 1
    assert {group["type"]: group["count"] for group in groups(conn)} == {"ValueError": 4, "KeyError": 2}


def test_a_first_failure_does_not_wait_for_another_sessions_first_failure(conn: Connection, dsn: str) -> None:
    held = claimed(conn, 2)
    with psycopg.connect(dsn) as other:
        fail(other, held[:1])
        conn.execute("set lock_timeout = '100ms'")
        fail(conn, held[1:])
        assert groups(conn) == []  # the other session makes it
    assert fold(conn) == 2
    assert [group["count"] for group in groups(conn)] == [2]


def test_a_failure_that_is_rolled_back_is_not_counted(conn: Connection) -> None:
    held = claimed(conn)
    with conn.transaction(force_rollback=True):
        fail(conn, held)
    assert groups(conn) == []
    conn.execute(
        "select stepwell.fail(%s, '{99}', '{error}', '{E}', '{m}', '{t}', '{0}', '{1}', '{1}')", [[held[0].id]]
    )
    assert groups(conn) == []  # the fence refused it


@pytest.mark.slow
def test_types_made_at_run_time_end_up_in_one_group(conn: Connection) -> None:
    for start in range(0, 600, 100):
        fail(conn, claimed(conn, 100), types=[f"Made{start + k}" for k in range(100)])
    found = groups(conn, limit=1000)
    assert len(found) == 201
    fold(conn)
    found = groups(conn, limit=1000)
    assert len(found) == 201
    [other] = [group for group in found if group["type"] == "(other)"]
    assert sum(group["count"] for group in found) == 600
    assert other["count"] == 400
    # The call that found the task full had recorded its failures under their own fingerprints.
    of_other = "select ids from stepwell.find_jobs(_failure => %s, _limit => 1000)"
    assert len(calls.one(conn.execute(of_other, [other["fingerprint"]]))) == 300
    fail(conn, claimed(conn), types=["Made0"])
    assert {group["count"] for group in groups(conn, limit=1000) if group["type"] == "Made0"} == {2}


@pytest.mark.slow
def test_old_groups_are_pruned_and_make_room(conn: Connection) -> None:
    for start in range(0, 300, 100):
        fail(conn, claimed(conn, 100), types=[f"Made{start + k}" for k in range(100)])
    fold(conn)
    conn.execute("insert into stepwell.clock select now() + interval '89 days'")
    assert calls.one(conn.execute("select stepwell.prune_failures()")) == 201  # the hours
    fail(conn, claimed(conn), types=["New"])
    fold(conn)
    conn.execute("update stepwell.clock set at = at + interval '2 days'")
    assert calls.one(conn.execute("select stepwell.prune_failures()")) == 201
    assert [group["type"] for group in groups(conn)] == ["(other)"]
    fail(conn, claimed(conn), types=["New"])
    assert {group["type"] for group in groups(conn)} == {"(other)", "New"}


def test_rescued_and_broken_jobs_have_groups_without_a_frame(conn: Connection) -> None:
    held = claimed(conn)
    conn.execute("update stepwell.worker set lease_until = 'epoch', lock_held = false")
    conn.execute("select stepwell.rescue()")
    [job] = calls.claim(conn, calls.register_worker(conn))
    assert job.id == held[0].id
    conn.execute("select stepwell.fail_broken(%s, 'no way')", [job.id])
    assert {(group["type"], group["frame"]) for group in groups(conn)} == {("LeaseLost", None), ("Broken", None)}


def test_a_cancelled_job_that_fails_is_not_counted(conn: Connection) -> None:
    held = claimed(conn)
    conn.execute("select stepwell.cancel(%s, 'enough')", [[held[0].id]])
    fail(conn, held)
    assert groups(conn) == []


def test_jobs_are_found_by_their_last_failure(conn: Connection) -> None:
    held = claimed(conn, 4)
    fail(conn, held[:3])
    fail(conn, held[3:], delay=0.0)
    [again] = calls.claim(conn, calls.register_worker(conn))
    fail(conn, [again], types=["KeyError"])
    by_type = {group["type"]: group["fingerprint"] for group in groups(conn)}

    def found(kind: str, **options: Any) -> set[str]:
        given = "".join(f", _{name} => %({name})s" for name in options)
        text = f"select ids::text[] from stepwell.find_jobs(_failure => %(id)s{given})"
        return set(calls.one(conn.execute(text, {"id": by_type[kind], **options})))  # pyright: ignore[reportArgumentType, reportCallIssue]

    assert found("ValueError") == {job.id for job in held[:3]}
    assert found("KeyError") == {again.id}
    assert found("ValueError", task="nothing") == set()
    assert len(found("ValueError", limit=2)) == 2
    conn.execute("select stepwell.retry(%s)", [[held[0].id]])
    assert found("ValueError", states=["failed"]) == {held[1].id, held[2].id}
    page = calls.one(conn.execute("select stepwell.dashboard_jobs(_failure => %s)", [by_type["ValueError"]]))
    assert [job["id"] for job in page["jobs"]] == [job.id for job in reversed(held[:3])]
    text = "select stepwell.dashboard_jobs(_failure => %s, _oldest_first => true, _limit => 1, _state => 'failed')"
    assert [job["id"] for job in calls.one(conn.execute(text, [by_type["ValueError"]]))["jobs"]] == [held[1].id]


def test_a_list_continues_after_its_last_group(conn: Connection) -> None:
    for k in range(5):
        fail(conn, claimed(conn, k + 1), types=[f"Made{k}"])
    fold(conn)
    first = groups(conn, sort="count", limit=3)
    rest = groups(conn, sort="count", limit=3, after=first[-1]["fingerprint"])
    assert [group["count"] for group in (*first, *rest)] == [5, 4, 3, 2, 1]
    newest = groups(conn, limit=2)
    assert [g["type"] for g in (*newest, *groups(conn, limit=2, after=newest[-1]["fingerprint"]))] == [
        "Made4", "Made3", "Made2", "Made1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "call", ["set_failures('{}', 'closed')", "set_failures('{}', null)", "list_failures(_sort => 'x')"]
)
def test_wrong_words_are_refused(conn: Connection, call: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="give "):
        conn.execute(f"select stepwell.{call}")  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_many_sessions_fail_and_fold_at_once_without_a_deadlock(conn: Connection, dsn: str) -> None:
    held = claimed(conn, 80)
    errors: list[BaseException] = []

    def run(part: list[Held]) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as mine:
                for k in range(0, len(part), 5):
                    fail(mine, part[k : k + 5], types=["A", "B", "C"] if k % 2 else ["C", "B", "A"])
                    fold(mine)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(held[k::4],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    fold(conn)
    assert sum(group["count"] for group in groups(conn)) == 80
    assert calls.one(conn.execute("select count(*) from stepwell.failure_tally")) == 0


def tally(conn: Connection, kind: str, minutes_ago: float, count: int = 1) -> None:
    """Failures that another transaction has counted, without making or opening their group."""
    conn.execute(
        "insert into stepwell.failure_tally (fingerprint, at, count, task, type, message)"
        " select stepwell.fingerprint('work', %s, null), stepwell.now() - %s * interval '1 minute', 1, 'work', %s, ''"
        " from generate_series(1, %s)",
        (kind, minutes_ago, kind, count),
    )


def test_a_group_that_is_opened_late_has_the_times_of_its_own_failures(conn: Connection) -> None:
    """It had the time of the first failure of all groups."""
    conn.execute("insert into stepwell.clock (at) values (now())")
    for kind, minutes_ago in (("Old", 50), ("New", 20), ("New", 10), ("Old", 40)):
        tally(conn, kind, minutes_ago)
    fold(conn)
    ago = {
        kind: (first, last)
        for kind, first, last in conn.execute(
            "select type, extract(epoch from stepwell.now() - first_at)::integer / 60,"
            " extract(epoch from stepwell.now() - last_at)::integer / 60 from stepwell.failure_group"
        )
    }
    assert ago == {"Old": (50, 40), "New": (20, 10)}


def test_the_group_of_all_other_failures_begins_with_the_first_of_them(conn: Connection) -> None:
    now = calls.one(conn.execute("insert into stepwell.clock (at) values (now()) returning at"))
    conn.execute(
        "insert into stepwell.failure_tally (fingerprint, at, count, task, type, message)"
        " select stepwell.fingerprint('work', n::text, null), stepwell.now() - n * interval '1 second', 1, 'work',"
        " n::text, '' from generate_series(1, 210) n"
    )
    fold(conn)
    [(first, last, count)] = conn.execute(
        "select first_at, last_at, count from stepwell.failure_group where type = '(other)'"
    ).fetchall()
    assert count == 10
    # Which ten they are, is decided by their fingerprints.
    own = conn.execute("select first_at from stepwell.failure_group where type <> '(other)'").fetchall()
    ages = set(range(1, 211)) - {round((now - at).total_seconds()) for (at,) in own}
    assert (round((now - first).total_seconds()), round((now - last).total_seconds())) == (max(ages), min(ages))


def test_a_group_that_a_pending_failure_opens_again_is_open_on_its_tab_too(conn: Connection) -> None:
    fail(conn, claimed(conn), types=["Boom"], frames=[None])
    set_state(conn, groups(conn)[0], "resolved")
    tally(conn, "Boom", 0)
    page = calls.one(conn.execute("select stepwell.dashboard_failures(_state => 'open')"))
    assert [group["state"] for group in page["groups"]] == ["open"]
    assert page["states"] == {"open": 1, "resolved": 0, "ignored": 0}


@pytest.mark.parametrize("call", ["set_failures((select array_agg(fingerprint) from groups), 'resolved')",
    "prune_failures()"])  # fmt: skip
def test_pending_failures_are_read_once_and_not_for_each_group(conn: Connection, call: str) -> None:
    conn.execute(
        "insert into stepwell.failure_group (fingerprint, task, type, message, first_at, last_at, state, state_at)"
        " select stepwell.fingerprint('old', n::text, null), 'old', n::text, '', '2020-01-01', '2020-01-01',"
        " 'resolved', '2020-01-02' from generate_series(1, 50) n"
    )
    tally(conn, "Boom", 0, 300)
    read = "select pg_stat_get_xact_tuples_returned('stepwell.failure_tally'::regclass)"
    with conn.transaction():
        before = calls.one(conn.execute(read))
        conn.execute(f"with groups as (select fingerprint from stepwell.failure_group) select stepwell.{call}".encode())
        assert 0 < calls.one(conn.execute(read)) - before <= 300


def test_pending_failures_of_several_causes_in_one_group_find_their_own_groups(conn: Connection) -> None:
    """While a task has too many groups, all others are counted under one fingerprint."""
    tally(conn, "Mine", 1, 2)
    fold(conn)
    for kind in ("Mine", "Other"):
        tally(conn, kind, 0, 3)
    conn.execute("update stepwell.failure_tally set fingerprint = stepwell.fingerprint('work', '(other)', null)")
    conn.execute(
        "insert into stepwell.failure_group (fingerprint, task, type, message, first_at, last_at, is_full)"
        " values (stepwell.fingerprint('work', '(other)', null), 'work', '(other)', '', now(), now(), true)"
    )
    assert fold(conn) == 6
    assert {group["type"]: group["count"] for group in groups(conn)} == {"Mine": 5, "(other)": 3}


def test_lost_runs_and_broken_jobs_count_as_failed_runs_of_their_queues(conn: Connection) -> None:
    """Only workers counted runs, so the charts missed those that no worker was there for."""
    worker = calls.register_worker(conn)
    for queue in ("a", "a", "b", "b"):
        calls.enqueue(conn, "work", queue=queue)
    held = calls.claim(conn, worker, queues=["a", "b"])
    assert len(held) == 4
    # This one has ended as cancelled.
    calls.cancel(conn, [held[-1].id])
    conn.execute("update stepwell.worker set lease_until = 'epoch', lock_held = false")
    conn.execute("select stepwell.rescue()")
    conn.execute("select stepwell.fail_broken(%s, 'no way')", [held[0].id])
    before = {group["type"]: (group["count"], group["message"]) for group in groups(conn)}
    assert {kind: count for kind, (count, _) in before.items()} == {"LeaseLost": 3, "Broken": 1}
    for _ in range(2):
        fold(conn)
        assert {group["type"]: (group["count"], group["message"]) for group in groups(conn)} == before
        counted = dict(conn.execute("select queue, failed from stepwell.stats").fetchall())
        assert counted == {"a": 3, "b": 1}
    chart = calls.one(conn.execute("select stepwell.dashboard_overview(_range => '1h')"))["chart"]
    assert chart["total"]["failed"] == 4
