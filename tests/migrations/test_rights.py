"""Rights over a migration: who could work goes on working, and nobody can do more than was granted."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import LiteralString, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from stepwell.errors import ConfigError, DatabaseError
from stepwell.postgres import migrate as migrating
from stepwell.postgres import rights
from stepwell.postgres.migrate import Migration, check, migrate, migrations, newest
from tests.sql.calls import blocked
from tests.waiting import until

from .dump import Connection, dump
from .version_5 import PRODUCER, WORKER, Version5, grant, make_version_5, version_5_calls

NewRole = Callable[[], str]
Upgrade = Callable[[LiteralString], None]


@pytest.fixture
def new_role(server_dsn: str) -> Generator[NewRole]:
    """Make roles. To be asked for before the database, so that they go after what they may own there."""
    made: list[str] = []
    with psycopg.connect(server_dsn, autocommit=True) as server:

        def make() -> str:
            made.append(f"r\"{uuid4().hex[:8]}' Ö")
            server.execute(sql.SQL("create role {}").format(sql.Identifier(made[-1])))
            return made[-1]

        yield make
        for name in made:
            server.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def empty(new_role: NewRole, empty_dsn: str) -> Generator[Connection]:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def ours(new_role: NewRole, dsn: str) -> Generator[Connection]:
    """The owner's connection to a migrated database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """As after an upgrade of the package, to one that has this migration more and lists a new function for workers."""
    read = migrating._read  # pyright: ignore[reportPrivateUsage]
    files = migrating._files  # pyright: ignore[reportPrivateUsage]

    def with_migration(text: LiteralString) -> None:
        next_one = Migration(newest() + 1, f"{newest() + 1:04}_next", text)
        released = migrations()
        monkeypatch.setattr(migrating, "migrations", lambda: (*released, next_one))

    def read_more(path: str) -> str:
        return read(path).replace("'{worker}', 'function', '{", "'{worker}', 'function', '{brand_new,")

    def files_and_more(folder: str) -> tuple[tuple[str, str], ...]:
        new = ("brand_new", "create or replace function stepwell.brand_new() returns int language sql as 'select 7'")
        return (*files(folder), new) if folder == "functions" else files(folder)

    monkeypatch.setattr(migrating, "_read", read_more)
    monkeypatch.setattr(migrating, "_files", files_and_more)
    return with_migration


@contextmanager
def as_role(conn: Connection, role: str) -> Generator[Connection]:
    with psycopg.connect(conn.info.dsn, autocommit=True) as theirs:
        theirs.execute(sql.SQL("set session authorization {}").format(sql.Identifier(role)))
        yield theirs


def may(conn: Connection, role: str) -> set[str]:
    """The functions that a role may call, but for those that are for everybody, and the relations that it may read."""
    rows = conn.execute(
        """
        select p.proname from pg_proc p
        where p.pronamespace = 'stepwell'::regnamespace and has_function_privilege(%(role)s, p.oid, 'execute')
          and not exists (
            select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0
          )
        union all
        select c.relname from pg_class c
        where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v')
          and has_table_privilege(%(role)s, c.oid, 'select')
        """,
        {"role": role},
    )
    return {name for (name,) in rows}


def listed(conn: Connection, *kinds: str) -> set[str]:
    rows = conn.execute("select name from stepwell.privilege where kind = any (%s)", (list(kinds),))
    return {name for (name,) in rows}


def recorded(conn: Connection) -> set[tuple[str, str]]:
    return {(each.role, each.kind) for each in rights.grants(conn)}


def test_a_fleet_of_version_5_goes_on_after_the_migration(empty: Connection, new_role: NewRole) -> None:
    make_version_5(empty)
    worker = new_role()
    grant(empty, worker, WORKER)
    with as_role(empty, worker) as old:
        row = old.execute(
            "select stepwell.register_worker('h', 1, '0.5', array['default'], '{\"ship\": {}}', 10, 60::float8)::text"
        ).fetchone()
        assert row is not None
        [worker_id] = row
        old.execute("select stepwell.enqueue('ship'), stepwell.enqueue('ship')")
        claim: LiteralString = (
            "select id::text, epoch from stepwell.claim(%s::uuid, array['default'], array[null]::integer[],"
            " array[null]::timestamptz[], array[null]::uuid[], array['ship'], 1, null::double precision[])"
        )
        [held] = old.execute(claim, (worker_id,)).fetchall()
        assert may(empty, worker) >= {"deliver_events", "wake"}

        migrate(empty)
        check(empty)

        # As code of version 5 calls: with the parameters it knows, reading the columns it knows.
        for call in version_5_calls():
            try:
                old.execute(call)
            except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException):
                pass
            except psycopg.Error as error:
                if not (error.sqlstate or "").startswith("SW"):
                    raise
        [another] = old.execute(claim, (worker_id,)).fetchall()
        finish: LiteralString = (
            "select stepwell.finish(array[%s]::uuid[], array[%s]::integer[], array['1']::text[], array[60]::float8[],"
            " '{succeeded}'::stepwell.state[], array[null]::text[], null::uuid[])"
        )
        for job in (held, another):
            assert old.execute(finish, job).fetchone() == ([],)
        states = old.execute("select state::text from stepwell.jobs").fetchall()
        assert states == [("succeeded",), ("succeeded",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            old.execute("select stepwell.wake(null)")

    # All was granted by hand; so it is recorded as all kinds, and the next migration covers what is new.
    assert recorded(empty) == {(worker, kind) for kind in rights.KINDS}
    assert may(empty, worker) == listed(empty, *rights.KINDS)


def test_jobs_of_version_5_live_on_in_the_hands_of_its_code(empty: Connection, new_role: NewRole) -> None:
    make_version_5(empty)
    worker = new_role()
    grant(empty, worker, WORKER)
    with as_role(empty, worker) as old:
        hands = Version5(old, "flow", "part")
        old.execute("select stepwell.enqueue('flow') from generate_series(1, 3)")
        parent, chain, plain = hands.claim(3)
        hands.save_step(parent, "a", 1)
        hands.advance(chain, "first", "second", 2)

        migrate(empty)
        check(empty)

        hands.save_step(parent, "b", 2)
        hands.spawn(parent, "part#0", 3, "part")
        hands.suspend(parent, [["part#0"]])
        hands.advance(chain, "second", "third", 3)
        hands.fail(chain, delay=0.0, max_attempts=20)
        hands.snooze(plain)
        claimed = dict(hands.claim_with_journals(9))
        assert len(claimed) == 3
        [child] = claimed.keys() - {(chain[0], 2), (plain[0], 2)}
        assert '"cursor" : "third"' in claimed[chain[0], 2]
        hands.finish(child)
        [(again, journal)] = hands.claim_with_journals(9)
        assert again == (parent[0], 2)
        assert [step[0] for step in json.loads(journal)["steps"]] == ["a", "b", "part#0"]
        hands.finish(again)
        hands.finish((chain[0], 2))
        hands.fail((plain[0], 2), delay=None, max_attempts=1)
        states = old.execute("select state::text from stepwell.jobs order by id").fetchall()
        assert states == [("succeeded",), ("succeeded",), ("failed",), ("succeeded",)]


def test_a_claim_of_version_5_that_waits_for_the_migration_goes_on(empty: Connection, new_role: NewRole) -> None:
    """Its body is that of version 5, and what it calls is replaced while it waits for its first table."""
    make_version_5(empty)
    worker = new_role()
    grant(empty, worker, WORKER)
    with as_role(empty, worker) as old, ThreadPoolExecutor(1) as threads:
        hands = Version5(old, "flow")
        old.execute("select stepwell.enqueue('flow') from generate_series(1, 8)")
        for _ in range(6):  # so that its plans are kept
            hands.claim(1)
        [(job_id, _)] = held = hands.claim(1)
        hands.advance(held[0], "first", "second", 2)
        hands.snooze(held[0])
        with empty.transaction():
            # As the migration does first, but for as long as the test likes.
            empty.execute("lock table stepwell.worker in access exclusive mode")
            claimed = threads.submit(hands.claim_with_journals, 9)
            until(lambda: blocked(empty, old))
            migrate(empty)
        assert [job_id in job for job, _ in claimed.result()].count(True) == 1


def test_a_producer_of_version_5_goes_on_as_one_and_nothing_else(empty: Connection, new_role: NewRole) -> None:
    make_version_5(empty)
    producer, modest = new_role(), new_role()
    grant(empty, producer, PRODUCER)
    grant(
        empty, modest, ("usage on schema stepwell", "execute on function stepwell.enqueue", "select on stepwell.jobs")
    )
    migrate(empty)
    assert recorded(empty) == {(producer, "producer")}
    assert may(empty, producer) == listed(empty, "producer")
    assert may(empty, modest) == {"enqueue", "jobs"}


def test_what_is_remade_is_granted_to_those_who_had_it(ours: Connection, new_role: NewRole, upgrade: Upgrade) -> None:
    by_hand, worker, viewer = new_role(), new_role(), new_role()
    grant(ours, by_hand, ("usage on schema stepwell", "select on stepwell.queues"))
    ours.execute(
        sql.SQL("grant execute on function stepwell.enqueue to {} with grant option").format(sql.Identifier(by_hand))
    )
    rights.grant(ours, worker, ["worker"])
    rights.grant(ours, viewer, ["viewer"])
    upgrade("drop function stepwell.enqueue; drop function stepwell.claim; drop view stepwell.queues;")
    migrate(ours)
    assert may(ours, by_hand) == {"enqueue", "queues"}
    row = ours.execute(
        "select has_function_privilege(%s, p.oid, 'execute with grant option') from pg_proc p"
        " where p.pronamespace = 'stepwell'::regnamespace and p.proname = 'enqueue'",
        (by_hand,),
    ).fetchone()
    assert row == (True,)
    assert may(ours, worker) == listed(ours, "worker")
    assert "brand_new" in may(ours, worker)
    assert may(ours, viewer) == listed(ours, "viewer")


def test_what_is_internal_is_taken_from_whoever_had_it(ours: Connection, new_role: NewRole, upgrade: Upgrade) -> None:
    role = new_role()
    grant(ours, role, ("usage on schema stepwell", "execute on all functions in schema stepwell"))
    assert "deliver_events" in may(ours, role)
    upgrade("")
    migrate(ours)
    assert may(ours, role) <= listed(ours, *rights.KINDS)
    # Nothing of what was granted by hand is lost, and nothing new is given.
    assert listed(ours, *rights.KINDS) - may(ours, role) <= listed(ours, "viewer") | {"brand_new"}


def test_default_privileges_give_nothing_away(empty: Connection, new_role: NewRole) -> None:
    role = new_role()
    name = sql.Identifier(role)
    for what in ("execute on functions", "all on tables", "all on sequences"):
        empty.execute(sql.SQL("alter default privileges grant {} to {}").format(sql.SQL(what), name))
    empty.execute("create schema stepwell")
    empty.execute(sql.SQL("grant all on schema stepwell to {}").format(name))
    migrate(empty)
    assert may(empty, role) == set()
    rows = empty.execute(
        "select c.relname from pg_class c"
        " where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v')"
        " and has_table_privilege(%s, c.oid, 'insert, update, delete, truncate, references, trigger')",
        (role,),
    )
    assert rows.fetchall() == []
    empty.execute(sql.SQL("revoke all on schema stepwell from {}").format(name))
    for what in ("functions", "tables", "sequences"):
        empty.execute(sql.SQL("alter default privileges revoke all on {} from {}").format(sql.SQL(what), name))


def test_a_right_to_read_tables_stays_and_a_right_to_change_them_goes(
    ours: Connection, new_role: NewRole, upgrade: Upgrade
) -> None:
    role = new_role()
    grant(ours, role, ("usage on schema stepwell", "select, insert, trigger on stepwell.job"))
    upgrade("")
    migrate(ours)
    row = ours.execute(
        "select has_table_privilege(%(r)s, 'stepwell.job', 'select'),"
        " has_table_privilege(%(r)s, 'stepwell.job', 'insert, trigger')",
        {"r": role},
    ).fetchone()
    assert row == (True, False)


def test_grants_to_public_are_not_kept(ours: Connection, new_role: NewRole, upgrade: Upgrade) -> None:
    role = new_role()
    for what in (
        "usage on schema stepwell",
        "execute on function stepwell.enqueue",
        "select on stepwell.queues",
        "select on stepwell.workers",
        "select on stepwell.job",
        "select (id) on stepwell.jobs",
    ):
        ours.execute(sql.SQL("grant {} to public").format(sql.SQL(what)))
    assert may(ours, role) == {"queues", "workers", "job"}  # it leaves out functions that public may call
    upgrade("drop view stepwell.queues;")
    migrate(ours)
    assert may(ours, role) == set()
    with as_role(ours, role) as theirs:
        for query in ("select from stepwell.queues", "select id from stepwell.jobs", "select stepwell.enqueue('a')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute(query)


def test_a_right_to_change_one_column_goes(ours: Connection, new_role: NewRole, upgrade: Upgrade) -> None:
    role = new_role()
    grant(ours, role, ("usage on schema stepwell", "select (id), update (task, queue) on stepwell.job"))
    upgrade("")
    migrate(ours)
    row = ours.execute(
        "select has_column_privilege(%(r)s, 'stepwell.job', 'id', 'select'),"
        " has_any_column_privilege(%(r)s, 'stepwell.job', 'update'),"
        " has_table_privilege(%(r)s, 'stepwell.job', 'select')",
        {"r": role},
    ).fetchone()
    assert row == (True, False, False)


def test_another_role_of_the_same_name_is_not_granted_what_the_first_was(
    ours: Connection, new_role: NewRole, upgrade: Upgrade
) -> None:
    role = new_role()
    rights.grant(ours, role, ["worker"])
    name = sql.Identifier(role)
    ours.execute(sql.SQL("drop owned by {}").format(name))
    ours.execute(sql.SQL("drop role {}").format(name))
    ours.execute(sql.SQL("create role {}").format(name))
    ours.execute(sql.SQL("grant usage on schema stepwell to {}").format(name))
    upgrade("")
    migrate(ours)
    assert recorded(ours) == set()
    assert may(ours, role) == set()
    rights.grant(ours, role, ["producer"])
    assert recorded(ours) == {(role, "producer")}


def test_a_renamed_role_keeps_its_grant(ours: Connection, new_role: NewRole, upgrade: Upgrade) -> None:
    role, other = new_role(), f"x{uuid4().hex[:8]}"
    rights.grant(ours, role, ["worker"])
    ours.execute(sql.SQL("alter role {} rename to {}").format(sql.Identifier(role), sql.Identifier(other)))
    try:
        upgrade("")
        migrate(ours)
        assert recorded(ours) == {(other, "worker")}
        assert "brand_new" in may(ours, other)
    finally:
        ours.execute(sql.SQL("alter role {} rename to {}").format(sql.Identifier(other), sql.Identifier(role)))


def test_what_a_superuser_migrates_belongs_to_the_owner_of_the_schema(empty: Connection, new_role: NewRole) -> None:
    owner = new_role()
    empty.execute(sql.SQL("create schema stepwell authorization {}").format(sql.Identifier(owner)))
    migrate(empty)
    rows = empty.execute(
        "select distinct pg_get_userbyid(o.owner)::text from ("
        " select c.relowner from pg_class c where c.relnamespace = 'stepwell'::regnamespace"
        " union all select p.proowner from pg_proc p where p.pronamespace = 'stepwell'::regnamespace"
        ") o (owner)"
    )
    assert rows.fetchall() == [(owner,)]


def test_migrating_runs_no_operator_of_somebody_elses(empty: Connection, new_role: NewRole) -> None:
    attacker = new_role()
    empty.execute(sql.SQL("grant create on schema public to {}").format(sql.Identifier(attacker)))
    with as_role(empty, attacker) as theirs:
        theirs.execute(
            "create function public.spring(oid, oid) returns text language plpgsql as"
            " $$ begin raise 'it runs as %', current_user; end $$"
        )
        theirs.execute("create operator public.|| (leftarg = oid, rightarg = oid, function = public.spring)")
    migrate(empty)
    check(empty)


def test_a_transaction_in_which_one_migrates_keeps_its_settings(empty: Connection, new_role: NewRole) -> None:
    owner = new_role()
    empty.execute(sql.SQL("create schema stepwell authorization {}").format(sql.Identifier(owner)))
    settings: LiteralString = (
        "select current_setting('search_path'), current_user::text, current_setting('check_function_bodies'),"
        " current_setting('client_min_messages')"
    )
    with empty.transaction():
        before = empty.execute(settings).fetchone()
        migrate(empty)
        assert empty.execute(settings).fetchone() == before


@pytest.mark.parametrize("kind", rights.KINDS)
def test_a_grant_gives_what_is_listed_and_a_revoke_takes_it(
    ours: Connection, new_role: NewRole, kind: rights.RoleKind
) -> None:
    role = new_role()
    before = dump(ours)
    rights.grant(ours, role, [kind])
    assert may(ours, role) == listed(ours, kind)
    assert rights.revoke(ours, role, [kind]) == []
    assert may(ours, role) == set()
    assert recorded(ours) == set()
    assert dump(ours) == before


def test_a_revoke_of_one_kind_leaves_what_another_allows(ours: Connection, new_role: NewRole) -> None:
    role = new_role()
    rights.grant(ours, role, ["worker", "operator"])
    grant(ours, role, ("select on stepwell.folded_steps",))
    assert rights.revoke(ours, role, ["worker"]) == ["operator"]
    assert may(ours, role) == listed(ours, "operator") | {"folded_steps"}
    assert rights.revoke(ours, role) == []
    assert may(ours, role) == set()
    with as_role(ours, role) as theirs, pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema"):
        theirs.execute("select stepwell.now()")


def test_a_role_that_is_not_there_is_refused(ours: Connection) -> None:
    for act in (lambda: rights.grant(ours, "no such", ["worker"]), lambda: rights.revoke(ours, "public")):
        with pytest.raises(ConfigError, match=r"this server has no role '(no such|public)'"):
            act()
    with pytest.raises(ConfigError, match="not as 'king'"):
        rights.grant(ours, "postgres", cast("list[rights.RoleKind]", ["king"]))


def test_granting_is_for_the_owner(ours: Connection, new_role: NewRole) -> None:
    role = new_role()
    rights.grant(ours, role, ["worker", "operator", "viewer", "producer"])
    with as_role(ours, role) as theirs:
        for act in (
            lambda: rights.grant(theirs, role, ["worker"]),
            lambda: rights.revoke(theirs, role),
            lambda: rights.grants(theirs),
        ):
            with pytest.raises(DatabaseError, match=r"connect as the owner, 'postgres'"):
                act()
