"""Every function that takes arrays takes 3,000 elements in a time that grows with their number, not with its square.

After some calls a session may keep a plan that was made for few elements, or for tables that were empty. A session that
is told to plan so at once stands for its tenth call. What a call costs is the processor time of its server process,
which depends little on what else the machine does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from stepwell.calendar.schedule import NewSchedule, Overlap
from stepwell.calendar.timing import Interval
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Move, Sums
from stepwell.postgres.queries.steps import Saving, Spawning
from stepwell.values.histogram import BINS
from stepwell.values.job import NewJob
from stepwell.values.log_line import LogLine
from stepwell.values.step import NewStep
from stepwell.worker.upkeep.ticker import due_ticks

from . import calls
from .calls import Connection, Held, processor_time
from .test_plans import database

MANY = 3000
GROWTH = 2.5
"""How much more an element of many may cost than one of a tenth as many. Most cost less; what goes by the square costs
ten times as much. A ratio, because processors differ, and share their caches with other processes."""
LEAST = 0.002
"""Processor seconds below which a call of a tenth is not told from its fixed costs."""

FEW = {
    "add_histograms", "answer_stacks", "backfill_schedule", "bulk_matches", "dashboard_export", "dashboard_jobs",
    "find_jobs", "grant_kinds", "grant_role", "known_role", "nearest_name", "notify_queues", "percentiles",
    "revoke_role", "set_queue",
}  # fmt: skip
"""Functions whose arrays name states, roles, kinds of rights, settings, limited queues, what workers know, or are
histograms; or that take no more than 100 requests for stacks, or 1,000 ticks."""
ALIASES = {"bury_steps", "lock_to_give_back", "notify_done"}
"""Old names, for calls of schema 7 that wait for the migration."""

Act = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """`prepare` puts in what is needed for so many elements, and returns the call."""

    name: str
    functions: frozenset[str]
    prepare: Callable[[Connection, int], Act]


CASES: list[Case] = []


def case(*functions: str) -> Callable[[Callable[[Connection, int], Act]], Callable[[Connection, int], Act]]:
    """A call of the first of these functions, which calls the others."""

    def register(prepare: Callable[[Connection, int], Act]) -> Callable[[Connection, int], Act]:
        CASES.append(Case(prepare.__name__, frozenset(functions), prepare))
        return prepare

    return register


@pytest.fixture(scope="module")
def unknown(server_dsn: str) -> Generator[Connection]:
    """A session on a database of which Postgres knows nothing."""
    with database(server_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        load(conn)
        yield conn


@pytest.fixture(scope="module")
def known(server_dsn: str) -> Generator[Connection]:
    """A session on a database that was analysed."""
    with database(server_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        load(conn)
        conn.execute("analyze")
        yield conn


def load(conn: Connection) -> None:
    """Others' jobs, steps and history."""
    conn.execute("set synchronous_commit = off")
    conn.execute("set plan_cache_mode = force_generic_plan")
    calls.enqueue_many(conn, ["{}"] * 10_000, tasks=["other"], queues=["other"])
    conn.execute(
        "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key)"
        " select j.id, now(), 1, 1, 'step', 'one' from stepwell.job j"
    )
    conn.execute(
        "insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank, state,"
        " task, queue, args) select stepwell.uuid7(), '2100-01-01', now(), now(), now(), 1, 1, 0, 'failed', 'other',"
        " 'other', '{}' from generate_series(1, 10000)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", ["unknown", "known"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_thousand_elements_take_no_longer_than_their_number_says(
    case: Case, knowledge: str, request: pytest.FixtureRequest
) -> None:
    conn: Connection = request.getfixturevalue(knowledge)
    # Each twice: the first call also compiles the functions, and a virtual processor may be slow for a moment.
    few = min(cost(conn, case, MANY // 10), cost(conn, case, MANY // 10))
    many = min(cost(conn, case, MANY), cost(conn, case, MANY))
    assert many < GROWTH * 10 * max(few, LEAST)


def cost(conn: Connection, case: Case, count: int) -> float:
    """The processor seconds of a call with so many elements."""
    with conn.transaction(force_rollback=True):
        act = case.prepare(conn, count)
        began = processor_time(conn)
        act()
        return processor_time(conn) - began


def test_every_function_that_takes_arrays_is_among_these(unknown: Connection) -> None:
    rows = unknown.execute(
        "select p.proname from pg_proc p where p.pronamespace = 'stepwell'::regnamespace and exists (select from"
        " unnest(p.proargtypes::oid[]) as t (oid) join pg_type y on y.oid = t.oid where y.typcategory = 'A')"
    )
    tested = {function for case in CASES for function in case.functions}
    assert {name for (name,) in rows} - tested - FEW - ALIASES == set()


def running(conn: Connection, count: int, *, durable: bool = False) -> list[Held]:
    """Jobs that a new worker holds."""
    worker = calls.register_worker(conn)
    rows = conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, worker_id, epoch, attempt,"
        " durable) select unnest(stepwell.uuids7(%s)), now(), now(), 'running', 'work', 'default', '{}', %s::uuid, 1,"
        " 1, %s returning id::text",
        (count, worker, durable),
    ).fetchall()
    held = [Held(job_id, "default", "work", 1, 1, 0, 0.0) for (job_id,) in rows]
    if durable:
        put_steps(conn, held)
    return held


def put_steps(conn: Connection, held: list[Held], *, undo: bool = False) -> None:
    conn.execute(
        "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, value, undo)"
        " select u.id, now(), 1, 1, 'step', 'one', '1', %s from unnest(%s::uuid[]) as u (id)",
        (undo, calls.ids(held)),
    )


def family(conn: Connection, count: int) -> tuple[Held, list[str]]:
    """A running job and the children that it spawned."""
    [parent] = running(conn, 1)
    return parent, [str(child) for child in fetch(conn, spawn_from([parent] * count))[0]]


def spawn_from(parents: list[Held]) -> queries.Query[Any]:
    return queries.steps.spawn(
        [
            Spawning(parent.id, parent.epoch, NewStep(f"child#{n}", n, "child"), NewJob("work", "{}"))
            for n, parent in enumerate(parents)
        ]
    )


def schedules(conn: Connection, count: int, overlap: Overlap = "allow", regained_by: str | None = None) -> None:
    [now] = fetch(conn, queries.reads.clock())
    timing = Interval(60.0)
    new = [NewSchedule(f"s{n}", "work", "{}", "default", 0, timing, overlap, 1, 0.0) for n in range(count)]
    nexts = [timing.after(now)] * count
    fetch(conn, queries.schedules.put_schedules("shop", new, nexts, declared=True, regained_by=regained_by))


@case("enqueue_many", "insert_jobs", "check_options", "check_policies", "check_sizes", "notify_ready")
def enqueue_many(conn: Connection, count: int) -> Act:
    return lambda: calls.enqueue_many(
        conn,
        ["{}"] * count,
        tasks=[f"t{n}" for n in range(count)],
        queues=["default", "mail"] * (count // 2),
        priorities=list(range(count)),
        delays=[0.0, 5.0] * (count // 2),
        metadata=['{"a": 1}'] * count,
        max_attempts=[3] * count,
        policies=['{"keep_failed": 60}'] * count,
    )


@case("claim_jobs")
def claim_of_many_tasks(conn: Connection, count: int) -> Act:
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}"] * count)
    tasks = [f"t{n}" for n in range(count)]
    tasks[count // 2] = "work"
    return lambda: calls.claim(conn, worker, count, tasks=tasks)


@case("claim_jobs")
def claim_from_many_queues(conn: Connection, count: int) -> Act:
    worker = calls.register_worker(conn)
    queues = [f"q{n}" for n in range(count)]
    calls.enqueue_many(conn, ["{}"] * count, queues=queues)
    return lambda: calls.claim(conn, worker, count, queues=queues, shares=[1.0] * count)


@case("claim_jobs")
def claim_with_many_pauses(conn: Connection, count: int) -> Act:
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}"] * count)
    for scope in ("queue", "task"):
        conn.execute(
            "insert into stepwell.control (action, scope, name, asked_at)"
            " select 'pause', %s, 'p' || n.n, now() from generate_series(1, %s) as n (n)",
            (scope, count),
        )
    queues, tasks = [f"q{n}" for n in range(count)], [f"t{n}" for n in range(count)]
    return lambda: calls.claim(conn, worker, count, queues=queues, tasks=tasks)


@case("ready_queues")
def ready_queues(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, queues=[f"q{n}" for n in range(count)])
    return lambda: calls.ready_queues(conn, "a*", "b", "q*")


@case("ready_queues")
def ready_queues_of_many_patterns(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, queues=[f"q{n}" for n in range(count)])
    patterns = [f"q{n}" for n in range(count)]
    return lambda: calls.ready_queues(conn, *patterns)


@case("claim")
def claim_by_a_worker_of_schema_6(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, queues=[f"q{n}" for n in range(count)])
    worker = calls.register_worker(conn)
    nulls: list[None] = [None] * count
    queues, tasks = [f"q{n}" for n in range(count)], ["work", *(f"t{n}" for n in range(count))]
    return lambda: conn.execute(
        "select id from stepwell.claim(%s, %s, %s::integer[], %s::timestamptz[], %s::uuid[], %s, %s)",
        (worker, queues, nulls, nulls, nulls, tasks, count),
    )


@case("first_ready")
def first_ready(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, queues=[f"q{n}" for n in range(count)])
    worker = calls.register_worker(conn)
    patterns, tasks = [f"q{n}" for n in range(count)], ["work", *(f"t{n}" for n in range(count))]
    return lambda: calls.first_ready(conn, worker, "a*", *patterns, tasks=tasks)


def limited(count: int, *, most: int = 2, keys: int | None = None) -> list[str]:
    """Policies of so many jobs, each with its own key or one of a few."""
    return [
        f'{{"admission":{{"limits":[{{"key":"k{n % (keys or count)}","most":{most}}}],"fair":{{"key":"f{n % 100}"}}}}}}'
        for n in range(count)
    ]


def admitted(conn: Connection, count: int, **options: Any) -> list[Held]:
    """Jobs that were admitted and claimed, with as many behind them in line."""
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}"] * count, policies=limited(count, **options))
    while calls.one(conn.execute("select cardinality(stepwell.lines(null, 5000)), admitted from stepwell.admit_keys("
                                 "(select (stepwell.lines(null, 5000))[:500]))")) > 0:  # fmt: skip
        pass
    return calls.claim(conn, worker, count)


@case("enqueue_many", "line_up", "notify_blocked")
def enqueue_limited(conn: Connection, count: int) -> Act:
    return lambda: calls.enqueue_many(conn, ["{}"] * count, policies=limited(count))


@case("admit_keys", "notify_blocked")
def admit_many_keys(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, policies=limited(count))
    return lambda: conn.execute("select stepwell.admit_keys(stepwell.lines(null, 500))")


@case("admit_keys")
def admit_many_of_one_key(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, policies=limited(count, most=count, keys=1))
    return lambda: conn.execute("select stepwell.admit_keys('{k0}')")


@case("admit_keys", "take_back")
def take_many_back(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, policies=limited(count, most=count, keys=1))
    conn.execute("select stepwell.admit_keys('{k0}')")
    conn.execute("select stepwell.set_limit('k0', 0)")
    return lambda: conn.execute("select stepwell.admit_keys('{k0}')")


def limited_and_rated(count: int, keys: int) -> list[str]:
    return [
        f'{{"admission":{{"limits":[{{"key":"k{n % keys}","most":100000}}],'
        '"rates":[{"key":"r","interval":0.0001,"burst":100000}]}}'
        for n in range(count)
    ]


@case("admit_keys", "admit_lines", "room_of", "rules_of")
def admit_limited_and_rated(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, policies=limited_and_rated(count, 1))
    return lambda: conn.execute("select stepwell.admit_keys('{k0}')")


@case("admit_keys", "admit_lines", "notify_blocked")
def move_to_the_line_of_a_full_key(conn: Connection, count: int) -> Act:
    calls.enqueue_many(conn, ["{}"] * count, policies=limited_and_rated(count, 1))
    conn.execute("select stepwell.set_rate('r', 1, 100000)")
    conn.execute("insert into stepwell.bucket (key, used, used_at) values ('r', 1, stepwell.now())")
    return lambda: conn.execute("select stepwell.admit_keys('{k0}')")


@case("finish", "return_permits")
def finish_limited(conn: Connection, count: int) -> Act:
    held = admitted(conn, count)
    assert len(held) == count
    return lambda: calls.finish(conn, held)


@case("snooze", "queue_again", "line_up")
def hand_back_limited(conn: Connection, count: int) -> Act:
    held = admitted(conn, count)
    return lambda: calls.snooze(conn, held)


@case("claim_jobs", "note_claimed")
def claim_of_rates(conn: Connection, count: int) -> Act:
    worker = calls.register_worker(conn)
    policy = '{"admission":{"rates":[{"key":"r","interval":0.0001,"burst":10000}],"fair":{"key":"f"}}}'
    calls.enqueue_many(conn, ["{}"] * count, policies=[policy])
    conn.execute("select stepwell.admit_keys('{r}')")
    return lambda: calls.claim(conn, worker, count)


def unique_policies(count: int, conflict: str = "ignore") -> list[str]:
    return [f'{{"admission":{{"unique":{{"key":"u{n}","conflict":"{conflict}"}}}}}}' for n in range(count)]


def enqueue_unique(conn: Connection, count: int, conflict: str = "ignore") -> None:
    conn.execute(
        "select stepwell.enqueue_unique(array['work'], %s::text[], _policies => %s::text[])",
        (["{}"] * count, unique_policies(count, conflict)),
    )


@case("enqueue_unique", "take_keys")
def enqueue_new_keys(conn: Connection, count: int) -> Act:
    return lambda: enqueue_unique(conn, count)


@case("enqueue_unique", "take_plain_keys")
def enqueue_plain_keys(conn: Connection, count: int) -> Act:
    keys = [f"u{n}" for n in range(count)]
    return lambda: conn.execute(
        "select stepwell.enqueue_unique(array['work'], %s::text[], _keys => %s::text[])", (["{}"] * count, keys)
    )


@case("enqueue_unique", "take_plain_keys")
def enqueue_plain_keys_that_are_taken(conn: Connection, count: int) -> Act:
    act = enqueue_plain_keys(conn, count)
    act()
    return act


@case("add_members", "take_keys_of")
def add_unique_members(conn: Connection, count: int) -> Act:
    group = conn.execute("select gen_random_uuid()").fetchall()[0][0]
    conn.execute("select stepwell.open_group(%s)", (group,))
    return lambda: conn.execute(
        "select stepwell.add_members(%s, array['work'], %s::text[], _policies => %s::text[])",
        (group, ["{}"] * count, unique_policies(count)),
    )


@case("enqueue_unique", "replace_taken", "replace_jobs")
def replace_all(conn: Connection, count: int) -> Act:
    enqueue_unique(conn, count)
    return lambda: enqueue_unique(conn, count, "replace")


@case("hold_keys")
def hold_keys(conn: Connection, count: int) -> Act:
    return lambda: conn.execute("select stepwell.hold_keys(%s::text[])", ([f"u{n}" for n in range(count)],))


@case("finish", "free_keys")
def finish_unique(conn: Connection, count: int) -> Act:
    worker = calls.register_worker(conn)
    enqueue_unique(conn, count)
    held = calls.claim(conn, worker, count)
    return lambda: calls.finish(conn, held)


@case("finish", "to_history", "release")
def finish(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: calls.finish(conn, held)


@case("finish", "keeps_by_queue")
def finish_as_the_queue_says(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    conn.execute("select stepwell.set_queue('default', keep => 60)")
    results: list[str | None] = ["null"] * count
    own = [n % 2 == 0 for n in range(count)]
    return lambda: fetch(
        conn,
        queries.outcomes.finish(
            calls.ids(held), calls.epochs(held), results, [9.0], ["succeeded"], [None], by_queue=own
        ),
    )


@case("finish")
def finish_half_refused(conn: Connection, count: int) -> Act:
    held = running(conn, count // 2) + [Held(str(uuid4()), "", "", 1, 1, 0, 0.0) for _ in range(count // 2)]
    return lambda: calls.finish(conn, held)


@case("finish", "delete_steps", "keep_events")
def finish_durable(conn: Connection, count: int) -> Act:
    held = running(conn, count, durable=True)
    conn.execute(
        "insert into stepwell.event (emitted_at, expires_at, job_id, name, key)"
        " select now(), 'infinity', u.id, 'e', '' from unnest(%s::uuid[]) as u (id)",
        (calls.ids(held),),
    )
    # As if each had taken a large event, which another than itself was sent.
    conn.execute(
        "update stepwell.step s set large = true, kind = 'wait', event_id = e.id"
        " from stepwell.event e where e.job_id = s.job_id and s.job_id = any (%s::uuid[])",
        (calls.ids(held),),
    )
    conn.execute("update stepwell.event set job_id = null where job_id = any (%s::uuid[])", (calls.ids(held[::2]),))
    return lambda: calls.finish(conn, held)


@case("finish", "begin_cancelled_undo", "begin_undo", "cancel_children", "lock_family")
def finish_cancelled_to_be_undone(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    put_steps(conn, held, undo=True)
    conn.execute("update stepwell.job set durable = true where id = any (%s::uuid[])", (calls.ids(held),))
    return lambda: calls.finish(conn, held, result=None, state="cancelled")


@case("finish", "end_children", "wake")
def finish_children_of_one(conn: Connection, count: int) -> Act:
    parent, children = family(conn, count)
    held = claimed(conn, children)
    wait = json.dumps({"steps": [], "groups": [[f"child#{n}" for n in range(count)]]})
    fetch(conn, queries.outcomes.suspend([parent.id], [parent.epoch], [wait]))
    return lambda: fetch(conn, finish_of(held, [parent.id] * count))


@case("finish", "wake")
def finish_children_of_many(conn: Connection, count: int) -> Act:
    parents = running(conn, count)
    children = [str(child) for child in fetch(conn, spawn_from(parents))[0]]
    held = claimed(conn, children)
    waits = [json.dumps({"steps": [], "groups": [[f"child#{n}"]]}) for n in range(count)]
    fetch(conn, queries.outcomes.suspend(calls.ids(parents), calls.epochs(parents), waits))
    return lambda: fetch(conn, finish_of(held, calls.ids(parents)))


def claimed(conn: Connection, ids: list[str]) -> list[Held]:
    worker = calls.register_worker(conn)
    conn.execute(
        "update stepwell.job set state = 'running', worker_id = %s::uuid, epoch = 1, attempt = 1"
        " where id = any (%s::uuid[])",
        (worker, ids),
    )
    return [Held(job_id, "default", "work", 1, 1, 0, 0.0) for job_id in ids]


def finish_of(held: list[Held], parents: list[str]) -> queries.Query[Any]:
    count = len(held)
    return queries.outcomes.finish(
        calls.ids(held),
        calls.epochs(held),
        ["1"] * count,
        [calls.DAY] * count,
        ["succeeded"] * count,
        [None] * count,
        parents,
    )


@case("finish", "admit")
def finish_runs_of_schedules(conn: Connection, count: int) -> Act:
    schedules(conn, count, "queue")
    held = running(conn, count)
    conn.execute(
        "update stepwell.job j set schedule_id = u.schedule_id, scheduled_for = now() from"
        " (select unnest(%s::uuid[]) as id, unnest(array(select s.id from stepwell.schedule s)) as schedule_id) u"
        " where j.id = u.id",
        (calls.ids(held),),
    )
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, schedule_id, scheduled_for)"
        " select stepwell.uuid7(), now(), now(), 'blocked', 'work', 'default', '{}', s.id, now()"
        " from stepwell.schedule s"
    )
    return lambda: calls.finish(conn, held)


@case("fail", "lock_family")
def fail(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: calls.fail(conn, held, delay=5.0)


@case("fail", "begin_undo", "delete_steps", "mark_beside")
def fail_durable_for_good(conn: Connection, count: int) -> Act:
    held = running(conn, count, durable=True)
    conn.execute("update stepwell.step set error = '{}' where job_id = any (%s::uuid[])", (calls.ids(held),))
    for job in (held[: count // 2],):
        conn.execute(
            "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, value, undo)"
            " select u.id, now(), 2, 1, 'step', 'two', '1', true from unnest(%s::uuid[]) as u (id)",
            (calls.ids(job),),
        )
    return lambda: fetch(conn, fail_of(held, None))


@case("fail", "mark_beside")
def fail_durable(conn: Connection, count: int) -> Act:
    held = running(conn, count, durable=True)
    conn.execute("update stepwell.step set error = '{}' where job_id = any (%s::uuid[])", (calls.ids(held),))
    return lambda: fetch(conn, fail_of(held, 5.0))


@case("fail", "enter_first")
def fail_in_the_first_step(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: fetch(conn, fail_of(held, 5.0, first_steps=["one"] * count))


@case("fail", "note_failures", "open_failure_groups")
def fail_for_as_many_causes(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: fetch(conn, fail_of(held, 5.0, [f"Made{n}" for n in range(count)]))


@case("note_lost", "failure_group_of")
def lose_runs_of_as_many_tasks(conn: Connection, count: int) -> Act:
    ids = [str(uuid4()) for _ in range(count)]
    tasks = [f"task{n}" for n in range(count)]
    return lambda: conn.execute(
        "select stepwell.note_lost(%s::uuid[], %s::text[], %s::text[], 'LeaseLost', 'gone')",
        (ids, tasks, ["default"] * count),
    )


@case("set_failures")
def resolve_failures(conn: Connection, count: int) -> Act:
    conn.execute(
        "insert into stepwell.failure_group (fingerprint, task, type, message, first_at, last_at)"
        " select stepwell.fingerprint('work', n::text, null), 'work', n::text, '', now(), now()"
        " from generate_series(1, %s) n",
        (count,),
    )
    groups = [row[0] for row in conn.execute("select fingerprint from stepwell.failure_group").fetchall()]
    return lambda: conn.execute("select stepwell.set_failures(%s, 'resolved')", (groups,))


def fail_of(
    held: list[Held], delay: float | None, types: list[str] | None = None, first_steps: Sequence[str] = ()
) -> queries.Query[Any]:
    count = len(held)
    return queries.outcomes.fail(
        calls.ids(held),
        calls.epochs(held),
        ["error"] * count,
        types or ["ValueError"] * count,
        ["no"] * count,
        [None] * count,
        [delay] * count,
        [3] * count,
        [calls.DAY] * count,
        ["one"] * count,
        (),
        [["one"]] * count,
        first_steps=first_steps,
    )


@case("snooze", "lock_to_hand_back")
def snooze(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: calls.snooze(conn, held)


@case("snooze", "enter_first")
def snooze_in_the_first_step(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: fetch(
        conn,
        queries.outcomes.snooze(
            calls.ids(held), calls.epochs(held), [5.0] * count, began=True, first_steps=["one"] * count
        ),
    )


@case("snooze", "lock_to_hand_back", "cancel")
def snooze_of_what_was_cancelled(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    conn.execute("update stepwell.job set cancelling = true where id = any (%s::uuid[])", (calls.ids(held),))
    return lambda: calls.snooze(conn, held)


@case("suspend", "begin_waits", "end_waits")
def suspend_many(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    wait = '{"steps": [{"key": "e", "n": 1, "kind": "sleep", "delay": 9, "pending": true}], "groups": [["e"]]}'
    return lambda: fetch(conn, queries.outcomes.suspend(calls.ids(held), calls.epochs(held), [wait] * count))


@case("suspend", "begin_waits", "take_events")
def suspend_many_until_an_event(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    wait = (
        '{"steps": [{"key": "e", "n": 1, "kind": "wait", "event": "paid", "event_key": "7", "pending": true}],'
        ' "groups": [["e"]]}'
    )
    return lambda: fetch(conn, queries.outcomes.suspend(calls.ids(held), calls.epochs(held), [wait] * count))


@case("advance")
def advance(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    moves = [Move(job.id, job.epoch, "first", "next", "1", 2, delay=9.0) for job in held]
    return lambda: fetch(conn, queries.outcomes.advance(moves))


@case("advance", "pass_on")
def advance_limited(conn: Connection, count: int) -> Act:
    moves = [Move(job.id, job.epoch, "first", "next", "1", 2, queue="next") for job in admitted(conn, count)]
    return lambda: fetch(conn, queries.outcomes.advance(moves))


@case("restart")
def restart(conn: Connection, count: int) -> Act:
    held = running(conn, count, durable=True)
    return lambda: fetch(conn, queries.outcomes.restart(calls.ids(held), calls.epochs(held), ["{}"] * count))


@case("run_now")
def run_now(conn: Connection, count: int) -> Act:
    ids = calls.enqueue_many(conn, ["{}"] * count, delays=[60.0])
    return lambda: fetch(conn, queries.jobs.run_now(ids))


@case("run_now", "wake")
def run_now_the_next_attempts_of_steps(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    wait = '{"steps": [{"key": "e~1", "n": 1, "kind": "retry", "delay": 9, "pending": true}], "groups": [["e~1"]]}'
    fetch(conn, queries.outcomes.suspend(calls.ids(held), calls.epochs(held), [wait] * count))

    def act() -> None:
        assert len(fetch(conn, queries.jobs.run_now(calls.ids(held)))[0]) == count

    return act


@case("edit_args", "check_values")
def edit_args(conn: Connection, count: int) -> Act:
    half = count // 2
    ids = calls.enqueue_many(conn, ["{}"] * half)
    held = running(conn, half)
    calls.fail(conn, held, delay=None)
    ids += calls.ids(held)

    def act() -> None:
        assert len(fetch(conn, queries.jobs.edit_args(ids, ['{"n": "\\u00e9"}'] * len(ids)))[0]) == count

    return act


@case("bulk_change", "delete_jobs")
def delete_jobs(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    fetch(conn, queries.logs.write_logs([LogLine(job.id, 1, 0.0, 20, "shop", "a line") for job in held], {}))
    calls.fail(conn, held, delay=None)

    def act() -> None:
        row = conn.execute("select stepwell.bulk_change('delete', '{}', %s::uuid[])", (calls.ids(held),)).fetchone()
        assert row == ({"deleted": count},)

    return act


@case("move_jobs", "look_at_lines")
def move_jobs(conn: Connection, count: int) -> Act:
    ids = calls.enqueue_many(conn, ["{}"] * count)

    def act() -> None:
        assert len(fetch(conn, queries.jobs.move(ids, "other", 3, None))[0]) == count

    return act


@case("report_progress")
def report_progress(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: calls.report_progress(conn, held)


@case("write_logs")
def write_logs_of_many(conn: Connection, count: int) -> Act:
    lines = [LogLine(job.id, 1, 0.0, 20, "shop", "a line") for job in running(conn, count)]
    return lambda: fetch(conn, queries.logs.write_logs(lines, {}))


@case("write_logs")
def write_logs_of_one(conn: Connection, count: int) -> Act:
    [job] = running(conn, 1)
    lines = [LogLine(job.id, 1, 0.0, 20, "shop", "a line") for _ in range(count)]
    return lambda: fetch(conn, queries.logs.write_logs(lines, {job.id: 5}))


@case("save_steps", "check_values")
def save_steps_of_many(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    savings = [Saving(job.id, job.epoch, [NewStep("one", 1, "step", "1")]) for job in held]
    return lambda: fetch(conn, queries.steps.save_steps(savings))


@case("save_steps")
def save_steps_of_one_anew(conn: Connection, count: int) -> Act:
    [job] = running(conn, 1)
    large = "x" * 70_000
    steps = [
        NewStep(f"s{n}", n, "step", f'"{large}"' if n % 1000 == 0 else "1", replaced=n % 2 == 0) for n in range(count)
    ]
    fetch(conn, queries.steps.save_steps([Saving(job.id, job.epoch, steps)]))
    return lambda: fetch(conn, queries.steps.save_steps([Saving(job.id, job.epoch, steps)]))


@case("spawn")
def spawn_from_one(conn: Connection, count: int) -> Act:
    [parent] = running(conn, 1)
    return lambda: fetch(conn, spawn_from([parent] * count))


@case("spawn")
def spawn_from_many(conn: Connection, count: int) -> Act:
    parents = running(conn, count)
    return lambda: fetch(conn, spawn_from(parents))


@case("spawn")
def spawn_again(conn: Connection, count: int) -> Act:
    [parent] = running(conn, 1)
    fetch(conn, spawn_from([parent] * count))
    return lambda: fetch(conn, spawn_from([parent] * count))


@case("forget_waits")
def forget_waits(conn: Connection, count: int) -> Act:
    [job] = running(conn, 1, durable=True)
    keys = [f"w{n}" for n in range(count)]
    conn.execute(
        "insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, pending, event, event_key)"
        " select %s::uuid, now(), 1, 1, 'wait', u.key, true, 'e', '' from unnest(%s::text[]) as u (key)",
        (job.id, keys),
    )
    return lambda: fetch(conn, queries.steps.forget_waits(job.id, job.epoch, keys))


@case("hand_back_unknown")
def hand_back_unknown_of_many_known(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    worker = calls.one(conn.execute("select worker_id::text from stepwell.job where id = %s::uuid", (held[0].id,)))
    return lambda: fetch(conn, queries.claims.hand_back_unknown(worker, calls.ids(held), calls.epochs(held)))


@case("hand_back_unknown", "snooze")
def hand_back_many_unknown(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    worker = calls.one(conn.execute("select worker_id::text from stepwell.job where id = %s::uuid", (held[0].id,)))
    return lambda: fetch(conn, queries.claims.hand_back_unknown(worker, [], []))


@case("fail")
def rescue(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    worker = calls.one(conn.execute("select worker_id::text from stepwell.job where id = %s::uuid", (held[0].id,)))
    return lambda: calls.unregister_worker(conn, worker)


@case("results")
def results_of_ended(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    calls.fail(conn, held, delay=None)
    return lambda: conn.execute("select id from stepwell.results(%s::uuid[])", (calls.ids(held),)).fetchall()


@case("job_changes")
def changes_of_live(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    query = "select id from stepwell.job_changes(%s::uuid[], %s::bigint[])"
    return lambda: conn.execute(query, (calls.ids(held), [None] * count)).fetchall()


@case("results")
def results_of_live(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: conn.execute("select id from stepwell.results(%s::uuid[])", (calls.ids(held),)).fetchall()


@case("retry")
def retry_ended(conn: Connection, count: int) -> Act:
    held = running(conn, count, durable=True)
    calls.fail(conn, held, delay=None)
    return lambda: calls.retry(conn, calls.ids(held))


@case("retry")
def retry_live(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    calls.fail(conn, held, delay=60.0)
    return lambda: calls.retry(conn, calls.ids(held))


@case("cancel", "lock_family")
def cancel_ready(conn: Connection, count: int) -> Act:
    ids = calls.enqueue_many(conn, ["{}"] * count)
    return lambda: calls.cancel(conn, ids)


@case("cancel")
def cancel_running(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: calls.cancel(conn, calls.ids(held))


@case("cancel", "cancel_children", "end_children")
def cancel_family(conn: Connection, count: int) -> Act:
    parent, _ = family(conn, count)
    calls.snooze(conn, [parent])
    return lambda: calls.cancel(conn, [parent.id])


@case("cancel", "begin_undo")
def cancel_to_be_undone(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    put_steps(conn, held, undo=True)
    conn.execute(
        "update stepwell.job set durable = true, state = 'ready', worker_id = null where id = any (%s::uuid[])",
        (calls.ids(held),),
    )
    return lambda: calls.cancel(conn, calls.ids(held))


@case("cancel", "admit")
def cancel_blocked_runs_of_one_schedule(conn: Connection, count: int) -> Act:
    schedules(conn, 1, "queue")
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, schedule_id, scheduled_for)"
        " select stepwell.uuid7(), now(), now(), 'blocked', 'work', 'default', '{}', s.id, now()"
        " from stepwell.schedule s, generate_series(1, %s)",
        (2 * count,),
    )
    ids = [
        row[0] for row in conn.execute("select id::text from stepwell.job where state = 'blocked' limit %s", (count,))
    ]
    return lambda: calls.cancel(conn, ids)


@case("put_schedules")
def put_schedules(conn: Connection, count: int) -> Act:
    return lambda: schedules(conn, count)


@case("put_schedules")
def put_schedules_again(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    return lambda: schedules(conn, count)


@case("put_schedules")
def put_schedules_after_a_lost_lease(conn: Connection, count: int) -> Act:
    workers = [
        fetch(conn, queries.fleet.register_worker("host", 1, "0", [], '{"work": {}}', 1, 60, age, owner="shop"))[0]
        for age in (60, 0)
    ]
    return lambda: schedules(conn, count, regained_by=workers[0])


@case("rename_schedules")
def rename_schedules(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    conn.execute("update stepwell.schedule set task = name")
    old, new = [[f"{letter}{n}" for n in range(count)] for letter in "sr"]
    return lambda: fetch(conn, queries.schedules.rename_schedules("shop", old, new, declared=True))


@case("remove_schedules")
def remove_schedules(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    names = [f"s{n}" for n in range(count)]
    return lambda: fetch(conn, queries.schedules.remove_schedules("shop", names))


@case("remove_schedules")
def remove_schedules_but_these(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    names = [f"s{n}" for n in range(count - 1)]
    return lambda: fetch(conn, queries.schedules.remove_schedules("shop", names, except_these=True))


@case("register_worker", "remove_schedules")
def remove_stale_schedules(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    conn.execute("update stepwell.schedule set declared_at = now() - interval '1 day'")
    names = [f"s{n}" for n in range(count // 2)]
    conn.execute(
        "select stepwell.register_worker('host', 1, '0', %s::text[], '{}', 10, 60, _owner => 'shop',"
        " _schedules => %s::text[], _stale_after => 60)",
        (names, names),
    )
    return lambda: fetch(conn, queries.schedules.remove_stale_schedules())


@case("rewind_schedules")
def rewind_schedules(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    found = fetch(conn, queries.schedules.due_schedules([]))
    rows = conn.execute(
        "select id, version, next_tick_at, next_tick_at - interval '1 s' from stepwell.schedule"
    ).fetchall()
    assert found
    columns = [list(column) for column in zip(*rows, strict=True)]
    return lambda: conn.execute(
        "select stepwell.rewind_schedules(%s::uuid[], %s::integer[], %s::timestamptz[], %s::timestamptz[])", columns
    )


@case("due_schedules")
def due_schedules(conn: Connection, count: int) -> Act:
    schedules(conn, count)
    ids = [row[0] for row in conn.execute("select id::text from stepwell.schedule")]
    return lambda: fetch(conn, queries.schedules.due_schedules(ids))


@case("tick", "tick_many")
def tick(conn: Connection, count: int) -> Act:
    return due(conn, count, "allow")


@case("tick", "tick_one", "runs_to_replace")
def tick_that_replaces(conn: Connection, count: int) -> Act:
    act = due(conn, count, "replace")
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, schedule_id, scheduled_for)"
        " select stepwell.uuid7(), now(), now(), 'ready', 'work', 'default', '{}', s.id, now()"
        " from stepwell.schedule s limit %s",
        (count // 10,),
    )
    return act


def due(conn: Connection, count: int, overlap: Overlap) -> Act:
    schedules(conn, count, overlap)
    conn.execute("update stepwell.schedule set next_tick_at = date_trunc('minute', now())")
    rows = conn.execute(
        "select id::text, name, version, cron, tz, every, catchup, next_tick_at, 0.0, now() from stepwell.schedule"
    ).fetchall()
    found = [queries.schedules.due_schedules([]).row(*row) for row in rows]
    reckoned = [due_ticks(schedule) for schedule in found]
    query = queries.schedules.tick(found, [following for _, following in reckoned], [times for times, _ in reckoned])

    def act() -> None:
        [fired] = fetch(conn, query)
        assert fired.enqueued == count, (fired.enqueued, fired.left_why[:3])

    return act


@case("add_stats", "given_histogram")
def add_stats(conn: Connection, count: int) -> Act:
    sums = [Sums(f"t{n}", "default", succeeded=1, waits=[1] * BINS, runs=[1] * BINS) for n in range(count)]
    return lambda: fetch(conn, queries.outcomes.add_stats(sums))


@case("stat_names")
def stat_names(conn: Connection, count: int) -> Act:
    names = [f"t{n}" for n in range(count)]
    fetch(conn, queries.outcomes.add_stats([Sums(name, "default", succeeded=1, runs=[1] * 9) for name in names]))
    return lambda: conn.execute("select stepwell.stat_names('1h', true, %s::text[])", (names,)).fetchall()


@case("make_partitions")
def make_partitions(conn: Connection, count: int) -> Act:
    return lambda: calls.make_partitions(conn, *[86400.0 + n for n in range(count)])


@case("lock_holders")
def lock_holders(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    return lambda: conn.execute("select id from stepwell.lock_holders(%s::uuid[])", (calls.ids(held),)).fetchall()


def waiting(conn: Connection, count: int, kind: str) -> list[Held]:
    """Jobs that wait for an event, or for a signal."""
    held = running(conn, count)
    step = {"key": "e", "n": 1, "kind": kind, "event": "paid", "event_key": "", "pending": True}
    wait = json.dumps({"steps": [step], "groups": [["e"]]})
    fetch(conn, queries.outcomes.suspend(calls.ids(held), calls.epochs(held), [wait] * count))
    return held


@case("deliver", "waiting_for", "lock_to_deliver", "take_events", "wake")
def deliver_one_event_to_many(conn: Connection, count: int) -> Act:
    waiting(conn, count, "wait")
    event = calls.one(
        conn.execute(
            "insert into stepwell.event (emitted_at, expires_at, name, key)"
            " values (now(), 'infinity', 'paid', '') returning id"
        )
    )
    return lambda: conn.execute("select stepwell.deliver(array[%s::bigint], true)", (event,))


@case("deliver", "waiting_for", "lock_to_deliver", "take_events", "wake")
def deliver_many_signals(conn: Connection, count: int) -> Act:
    held = waiting(conn, count, "receive")
    events = [
        row[0]
        for row in conn.execute(
            "insert into stepwell.event (emitted_at, expires_at, job_id, name, key)"
            " select now(), 'infinity', u.id, 'paid', '' from unnest(%s::uuid[]) as u (id) returning id",
            (calls.ids(held),),
        )
    ]
    return lambda: conn.execute("select stepwell.deliver(%s::bigint[], true)", (events,))


@case("look_again", "take_events")
def look_again(conn: Connection, count: int) -> Act:
    held = waiting(conn, count, "wait")
    return lambda: conn.execute("select stepwell.look_again(%s::uuid[])", (calls.ids(held),))


@case("hold_misfits", "lock_to_hand_back")
def hold_misfits(conn: Connection, count: int) -> Act:
    held = running(conn, count)
    query = queries.outcomes.hold_misfits(
        calls.ids(held), calls.epochs(held), list(range(count)), ["no"] * count, [60.0] * count
    )
    return lambda: fetch(conn, query)


def grouped(conn: Connection, count: int, groups: int) -> list[Held]:
    """Running members of so many groups, of which each has a callback."""
    held = running(conn, count)
    opened = [str(uuid4()) for _ in range(groups)]
    conn.execute(
        "select stepwell.open_group(u.id, 60.0, 'summary', array['work'], array['{}'])"
        " from unnest(%s::uuid[]) as u (id)",
        (opened,),
    )
    conn.execute(
        "update stepwell.job j set group_id = u.group_id"
        " from unnest(%s::uuid[], %s::uuid[]) as u (id, group_id) where j.id = u.id",
        (calls.ids(held), [opened[n % groups] for n in range(count)]),
    )
    conn.execute("update stepwell.job_group set added = %s where total is null", (count // groups,))
    conn.execute("update stepwell.job_group set total = added")
    return held


@case("add_members")
def add_members(conn: Connection, count: int) -> Act:
    group = str(uuid4())
    fetch(conn, queries.groups.open_group(group, 60.0, None, None))
    return lambda: fetch(conn, queries.groups.add_members(group, [NewJob(f"t{n}", "{}") for n in range(count)]))


@case("finish", "count_members", "settle_groups")
def finish_members_of_one_group(conn: Connection, count: int) -> Act:
    held = grouped(conn, count, 1)
    return lambda: calls.finish(conn, held)


@case("finish", "count_members", "settle_groups", "start_callbacks", "open_group")
def finish_the_last_members_of_many_groups(conn: Connection, count: int) -> Act:
    held = grouped(conn, count, count)
    return lambda: calls.finish(conn, held)


@case("fail", "count_members", "merge_failures")
def fail_members_of_many_groups(conn: Connection, count: int) -> Act:
    held = grouped(conn, count, count // 2)
    return lambda: calls.fail(conn, held[: count // 2], delay=None)


@case("cancel", "count_members")
def cancel_members_of_many_groups(conn: Connection, count: int) -> Act:
    held = grouped(conn, count, count)
    conn.execute(
        "update stepwell.job set state = 'ready', worker_id = null where id = any (%s::uuid[])", (calls.ids(held),)
    )
    return lambda: calls.cancel(conn, calls.ids(held))


@case("retry", "uncount_members")
def retry_members_of_many_groups(conn: Connection, count: int) -> Act:
    held = grouped(conn, count, count // 2)
    calls.fail(conn, held[: count // 2], delay=None)
    return lambda: calls.retry(conn, calls.ids(held[: count // 2]))


@case("promote", "settle_groups")
def add_up_the_counts_of_many_groups(conn: Connection, count: int) -> Act:
    held = grouped(conn, count, count)
    conn.execute(
        "update stepwell.job set state = 'ready', worker_id = null where id = any (%s::uuid[])", (calls.ids(held),)
    )
    calls.cancel(conn, calls.ids(held))
    return lambda: calls.promote(conn)
