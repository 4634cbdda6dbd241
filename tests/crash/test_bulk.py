"""A worker is killed in the middle of a bulk operation: another one goes on, and each job is changed once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from .audit import count
from .fleet import Fleet, until

pytestmark = pytest.mark.crash

MANY = 8000


def test_a_bulk_operation_survives_its_worker_and_changes_each_job_once(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    witness.execute("select stepwell.enqueue('quick', delay => '1 hour') from generate_series(1, %s)", (MANY,))
    witness.execute("create table crash.moved (id uuid not null)")
    witness.execute("grant all on crash.moved to public")
    witness.execute(
        "create function crash.note() returns trigger language plpgsql as"
        " $$ begin insert into crash.moved (id) values (new.id); return null; end $$"
    )
    witness.execute(
        "create trigger note after update of queue on stepwell.job for each row execute function crash.note()"
    )
    # The worker can do one part, and waits with the next: it is killed in the middle, however busy the machine is.
    witness.execute(
        "create function crash.wait() returns trigger language plpgsql as $$ begin"
        " if exists (select from stepwell.bulk where done > 0) then perform pg_advisory_xact_lock(7); end if;"
        " return null; end $$"
    )
    witness.execute(
        "create trigger wait before update on stepwell.job for each statement execute function crash.wait()"
    )
    witness.execute("select pg_advisory_lock(7)")
    first = fleet.start()
    row = witness.execute(
        'select stepwell.start_bulk(\'move\', \'{"queue": "default"}\', \'{"queue": "elsewhere"}\')'
    ).fetchone()
    assert row is not None
    bulk = row[0]
    until(lambda: count(witness, "select done from stepwell.bulk where id = %s", bulk) > 0, "it has begun")
    first.kill()
    done = count(witness, "select done from stepwell.bulk where id = %s", bulk)
    assert count(witness, "select count(*) from crash.moved") >= done
    assert done < MANY
    witness.execute("select pg_advisory_unlock(7)")
    fleet.start()
    until(
        lambda: count(witness, "select count(*) from stepwell.bulk where id = %s and state = 'done'", bulk),
        "it is done",
    )
    assert count(witness, "select done from stepwell.bulk where id = %s", bulk) == MANY
    assert count(witness, "select count(*) from crash.moved") == MANY
    assert count(witness, "select count(distinct id) from crash.moved") == MANY
