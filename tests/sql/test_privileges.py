"""Every function and view, and who may use it: a new one fails here until somebody has decided."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from . import calls
from .calls import Connection

# Each function, the rights it runs with, and the kinds of role that "stepwell grant" lets call it.
# Think twice before a function that runs as the owner is granted: it must take every name from pg_catalog, trust no
# type, record or setting of its caller's, and build no SQL out of what it is given.
FUNCTIONS = """
accepts                 owner   everybody
add_counts              caller
add_histograms          caller
add_members             owner   producer worker
add_stats               owner   worker
admit                   owner   worker
admit_keys              owner   worker
admit_lines             caller
advance                 owner   worker
answer_stacks           owner   worker
apply_rights            caller
argument_is             caller
ask_stack               owner   viewer operator
backfill_schedule       owner   operator
backlog                 caller
begin_cancelled_undo    caller
begin_undo              caller
begin_waits             caller
bulk_change             caller
bulk_chunk              owner   worker
bulk_matches            caller
bulk_states             caller
bury_steps              caller
cancel                  owner   worker operator
cancel_children         caller
cancel_group            owner   worker operator
check_isolation         caller
check_key               caller
check_options           caller
check_policies          caller
check_queue             caller
check_rate              caller
check_sizes             caller
check_value             caller
check_values            caller
claim                   owner   worker
claim_jobs              owner   worker
continue_bulk           owner   operator
control_scope           caller
count_enqueued          owner   worker
count_members           caller
count_running           caller
count_state             caller
count_states            caller
dashboard_audit         owner   viewer operator
dashboard_bulks         owner   viewer operator
dashboard_children      owner   viewer operator
dashboard_database      owner   viewer operator
dashboard_export        owner   viewer operator
dashboard_failure       owner   viewer operator
dashboard_failures      owner   viewer operator
dashboard_job           owner   viewer operator
dashboard_jobs          owner   viewer operator
dashboard_limits        owner   viewer operator
dashboard_names         owner   viewer operator
dashboard_overview      owner   viewer operator
dashboard_pulse         owner   viewer operator
dashboard_queues        owner   viewer operator
dashboard_schedules     owner   viewer operator
dashboard_steps         owner   viewer operator
dashboard_tasks         owner   viewer operator
dashboard_views         owner   viewer operator
dashboard_workers       owner   viewer operator
delete_jobs             owner   operator
delete_steps            caller
delete_view             owner   operator
deliver                 caller
deliver_events          owner
deliver_late            owner   worker
due_schedules           owner   worker
edit_args               owner   operator
emit                    owner   producer worker
end_children            caller
end_waits               caller
enqueue                 owner   producer worker
enqueue_many            owner   producer worker
enqueue_unique          owner   producer worker
enter_first             caller
expiry                  caller
fail                    owner   worker
fail_broken             caller
fail_held               caller
failure_group_of        caller
find_jobs               owner   viewer operator
fingerprint             caller
finish                  owner   worker
first_ready             owner   worker
first_uuid_at           caller
fold_failures           owner   worker
fold_groups             caller
forget_waits            owner   worker
fork                    owner   operator
free_keys               caller
gauges                  owner   worker viewer operator
given_histogram         caller
grant_kinds             caller
grant_role              caller
group_progress          owner   producer worker viewer operator
group_results           owner   producer worker viewer operator
group_summary           caller
hand_back_unknown       owner   worker
has_live_run            caller
histogram_bounds        caller  viewer operator
hold_keys               owner   producer worker
hold_misfits            owner   worker
insert_jobs             caller
insert_run              caller
is_admission            caller
is_conflict_action      caller
job_changes             owner   producer worker viewer operator
job_logs                owner   viewer operator
journal                 caller
json_size               caller
keep_events             caller
keep_failed_of          caller
keeps_by_queue          caller
kept_steps              caller
key_holder              owner   operator
known_role              caller
large_value             owner   worker viewer operator
last_error              caller
last_failure            caller
lateness                caller
lead                    owner   worker
lead_and_rescue         owner   worker
line_up                 caller
lines                   owner   worker
list_failures           owner   viewer operator
list_limits             owner   viewer operator
lock_event              caller
lock_family             caller
lock_holders            owner   worker
lock_partitions         caller
lock_to_deliver         caller
lock_to_give_back       caller
lock_to_hand_back       caller
lone_limit              caller
look_again              caller
look_at_lines           caller
look_delay              caller
make_partitions         owner   worker
mark_beside             caller
merge_failures          caller
microseconds            caller
missing_tokens          caller
move_jobs               owner   operator
nearest_name            caller
note_claimed            caller
note_failures           caller
note_lost               caller
notify                  caller
notify_blocked          caller
notify_done             caller
notify_queues           caller
notify_ready            caller
now                     owner   everybody
oldest_ready            caller
open_failure_groups     caller
open_group              owner   producer worker
open_rate               owner
pass_on                 caller
pause                   owner   operator
pause_schedule          owner   operator
percentiles             caller  viewer operator
place_text              caller
preview_bulk            owner   viewer operator
promote                 owner   worker
promote_one             caller
prune                   owner   worker
prune_audit             owner   worker
prune_bulks             owner   worker
prune_events            owner   worker
prune_failures          owner   worker
prune_groups            owner   worker
prune_keys              owner   worker
prune_logs              owner   worker
prune_rows              owner   worker
prune_signals           owner   worker
prune_stats             owner   worker
prune_ticks             owner   worker
put_schedules           owner   worker operator
queue_again             caller
queue_key               caller
queue_names             caller
queue_room              caller
read_claimed            owner   worker
read_stack              owner   viewer operator
ready_queues            owner   worker
record_act              owner   producer worker operator
register_worker         owner   worker
release                 caller
release_misfits         caller
remove_schedules        owner   worker operator
remove_stale_schedules  owner   worker
remove_worker           caller
rename_schedules        owner   worker operator
renew                   owner   worker
replace_jobs            caller
replace_taken           caller
report_progress         owner   worker
rescue                  owner   worker
rescue_jobs             owner   worker
rescue_unregistered     owner   worker
restart                 owner   worker
results                 owner   producer worker
resume                  owner   operator
resume_schedule         owner   operator
retry                   owner   operator
return_permits          caller
return_stray_permits    owner   worker
revoke_role             caller
rewind_schedules        owner   worker
rivals                  owner   worker
role_name               caller
room_of                 caller
rules_of                caller
run_now                 owner   operator
runs_to_replace         caller
save_steps              owner   worker
save_view               owner   operator
save_waits              owner   worker
saved_size              caller
schedule_times          owner   worker
schema_version          owner   everybody
seal_group              owner   producer worker
send                    owner   producer worker
set_failures            owner   operator
set_limit               owner   operator
set_queue               owner   operator
set_rate                owner   operator
set_size_limit          caller
settle_groups           caller
shell_word              caller
snooze                  owner   worker
spawn                   owner   worker
start_bulk              owner   operator
start_callbacks         caller
stat_chart              caller
stat_names              caller
stat_range              caller
stat_rows               caller
step_saved              owner   worker
steps_done              caller
still_held              owner   worker
stop                    owner   operator
stop_bulk               owner   operator
sum_stats               owner   worker
suspend                 owner   worker
take_back               caller
take_events             caller
take_keys               caller
take_keys_of            caller
take_plain_keys         caller
task_names              caller
task_options            caller
task_settings           owner   viewer operator
tick                    owner   worker
tick_many               caller
tick_one                caller
timeline                caller
to_history              caller
trigger_schedule        owner   operator
uncount_members         caller
unfold                  caller  everybody
unique_text             caller
unregister_worker       owner   worker
use_queue_tokens        caller
uuid7                   caller
uuids7                  caller
waiting_for             caller
wake                    caller
why                     owner   viewer operator
why_blocked             caller
why_ready               caller
why_waiting             caller
write_logs              owner   worker
write_sum               caller
"""

VIEWS = """
controls          viewer operator
failures          viewer operator
folded_steps
jobs              viewer operator
limits            viewer operator
queues            viewer operator
schedules         viewer operator
size_limits       viewer operator
stats             viewer operator
steps             viewer operator
stopping_workers
ticks             viewer operator
workers           viewer operator
"""

KINDS = ("producer", "worker", "viewer", "operator")


def lines(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.strip().splitlines()]


@contextmanager
def new_role(conn: Connection) -> Generator[str]:
    name = f"r{uuid4().hex[:12]}"
    conn.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
    try:
        yield name
    finally:
        conn.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(name)))
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@contextmanager
def as_role(dsn: str, name: str) -> Generator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as theirs:
        theirs.execute(sql.SQL("set session authorization {}").format(sql.Identifier(name)))
        yield theirs


@pytest.fixture
def roles(conn: Connection) -> Generator[dict[str, str]]:
    """A role of each kind, and one that may only use the schema."""
    with (
        new_role(conn) as everybody,
        new_role(conn) as producer,
        new_role(conn) as worker,
        new_role(conn) as viewer,
        new_role(conn) as operator,
    ):
        conn.execute(sql.SQL("grant usage on schema stepwell to {}").format(sql.Identifier(everybody)))
        named = dict(zip(KINDS, (producer, worker, viewer, operator), strict=True))
        for kind, name in named.items():
            conn.execute("select stepwell.grant_role(%s, array[%s])", (name, kind))
        yield {"everybody": everybody, **named}


def test_each_function_is_for_whom_it_is_meant(conn: Connection, roles: dict[str, str]) -> None:
    rows = conn.execute(
        """
        select p.proname, p.prosecdef,
          array(select r.kind from unnest(%s::text[], %s::text[]) with ordinality as r (kind, role, n)
                where has_function_privilege(r.role, p.oid, 'execute') order by r.n)
        from pg_proc p where p.pronamespace = 'stepwell'::regnamespace order by p.proname
        """,
        (list(roles), list(roles.values())),
    )
    found: list[str] = []
    for name, definer, kinds in rows:
        whose = "everybody" if "everybody" in kinds else " ".join(kinds)
        found.append(f"{name} {'owner' if definer else 'caller'} {whose}".rstrip())
    assert found == lines(FUNCTIONS)


def test_each_view_is_for_whom_it_is_meant_and_no_table_is_for_anybody(conn: Connection, roles: dict[str, str]) -> None:
    rows = conn.execute(
        """
        select c.relname, c.relkind::text,
          array(select r.kind from unnest(%s::text[], %s::text[]) with ordinality as r (kind, role, n)
                where has_table_privilege(r.role, c.oid, 'select') order by r.n),
          array(select r.kind from unnest(%s::text[], %s::text[]) as r (kind, role)
                where has_table_privilege(r.role, c.oid, 'insert, update, delete, truncate, references, trigger'))
        from pg_class c
        where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
        order by c.relname
        """,
        (list(roles), list(roles.values())) * 2,
    ).fetchall()
    assert [f"{name} {' '.join(may)}".rstrip() for name, kind, may, _ in rows if kind == "v"] == lines(VIEWS)
    assert [name for name, kind, may, _ in rows if kind != "v" and may] == []
    assert [name for name, _, _, changes in rows if changes] == []


def test_no_role_may_create_in_the_schema(conn: Connection, roles: dict[str, str]) -> None:
    for role in roles.values():
        row = conn.execute("select has_schema_privilege(%s, 'stepwell', 'create')", (role,)).fetchone()
        assert row == (False,)


def test_trigger_functions_are_for_nobody(conn: Connection) -> None:
    rows = conn.execute(
        "select p.proname from pg_proc p join stepwell.privilege r on r.name = p.proname and r.object = 'function'"
        " where p.pronamespace = 'stepwell'::regnamespace and p.prorettype::regtype::text like '%trigger'"
    )
    assert rows.fetchall() == []


def test_the_list_names_only_what_there_is(conn: Connection) -> None:
    rows = conn.execute(
        """
        select r.object, r.name from stepwell.privilege r
        where case r.object
          when 'function' then not exists (
            select from pg_proc p where p.pronamespace = 'stepwell'::regnamespace and p.proname = r.name
          )
          else to_regclass(format('stepwell.%I', r.name)) is null
        end
        """
    )
    assert rows.fetchall() == []


def test_a_worker_cannot_run_code_of_its_own_as_the_owner_by_a_trigger(conn: Connection, dsn: str) -> None:
    """A trigger function trusts the types of its row: a cast that belongs to an attacker would run as the owner."""
    with new_role(conn) as worker:
        conn.execute(sql.SQL("grant create on schema public to {}").format(sql.Identifier(worker)))
        conn.execute("select stepwell.grant_role(%s, '{worker}')", (worker,))
        with as_role(dsn, worker) as theirs:
            theirs.execute("create table public.loot (who text)")
            theirs.execute("grant insert on public.loot to public")
            theirs.execute("create type public.bait as (n bigint)")
            theirs.execute(
                "create function public.spring(public.bait) returns bigint language plpgsql as"
                " $$ begin insert into public.loot values (current_user); return 9223372036854775807; end $$"
            )
            theirs.execute("create cast (public.bait as bigint) with function public.spring(public.bait) as implicit")
            theirs.execute("create temp table trap (id public.bait, transaction public.bait)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="deliver_events"):
                theirs.execute(
                    "create trigger snap after insert on trap for each row execute function stepwell.deliver_events()"
                )
            theirs.execute("insert into trap values (row(1), row(1))")
            assert theirs.execute("select who from public.loot").fetchall() == []


def test_an_operator_of_somebody_elses_does_not_run_for_those_who_look(conn: Connection, dsn: str) -> None:
    """`json ->> 'literal'` is looked for as json ->> json first, wherever the reader's search_path leads."""
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    [job] = calls.claim(conn, worker)
    conn.execute(
        "select stepwell.save_steps(array[%s]::uuid[], array[%s], array['a'], array[1], array['step'], array['1'])",
        (job.id, job.epoch),
    )
    calls.finish(conn, [job])
    with new_role(conn) as attacker:
        conn.execute(sql.SQL("grant create on schema public to {}").format(sql.Identifier(attacker)))
        with as_role(dsn, attacker) as theirs:
            theirs.execute("create table public.loot (who text)")
            theirs.execute("grant insert on public.loot to public")
            theirs.execute(
                "create function public.spring(json, json) returns text language plpgsql as"
                " $$ begin insert into public.loot values (current_user); return null; end $$"
            )
            theirs.execute("create operator public.->> (leftarg = json, rightarg = json, function = public.spring)")
            theirs.execute(
                "create function public.spring(json, text) returns text language plpgsql as"
                " $$ begin insert into public.loot values (current_user); return null; end $$"
            )
            theirs.execute("create operator public.->> (leftarg = json, rightarg = text, function = public.spring)")
        for path in ("public", "public, pg_catalog"):
            conn.execute(f"set search_path = {path}".encode())
            rows = conn.execute("select key, value, error from stepwell.steps where job_id = %s", (job.id,)).fetchall()
            assert rows == [("a", 1, None)]
        assert conn.execute("select who from public.loot").fetchall() == []


@pytest.mark.parametrize(
    "setting",
    [
        "standard_conforming_strings = off",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German'",
        "transform_null_equals = on",
    ],
)
def test_what_a_caller_has_set_does_not_change_what_functions_do(conn: Connection, setting: str) -> None:
    conn.execute(f"set {setting}".encode())
    conn.execute("select stepwell.emit('shipped', '7', '{\"by\": \"mule\"}')")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot store"):
        conn.execute("select stepwell.emit('shipped', '7', E'\"\\\\u0000\"')")
    assert len(calls.make_partitions(conn, 3000 * calls.DAY)) == 6


def test_partitions_are_made_where_the_tables_are_and_for_nobody_else(conn: Connection) -> None:
    with new_role(conn) as other:
        conn.execute(sql.SQL("alter default privileges grant all on tables to {}").format(sql.Identifier(other)))
        conn.execute("set default_tablespace = pg_global")
        made = calls.make_partitions(conn, 3000 * calls.DAY)
        assert len(made) == 6
        rows = conn.execute(
            "select c.relname from pg_class c where c.relnamespace = 'stepwell'::regnamespace and c.relname = any (%s)"
            " and (c.reltablespace <> 0 or has_table_privilege(%s, c.oid, 'select, insert, trigger'))",
            (made, other),
        )
        assert rows.fetchall() == []
