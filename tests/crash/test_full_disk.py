"""A database that takes no more rows for a while: outcomes are kept until it does, and nothing runs twice."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left
from .fleet import Fleet, until

pytestmark = pytest.mark.crash

_FULL = """
create function crash.full() returns trigger language plpgsql as $$
begin
  raise exception using errcode = 'disk_full', message = 'could not extend file: No space left on device';
end $$;
create trigger full_disk before insert on stepwell.history for each row execute function crash.full();
"""
_RUNNING = "select count(*) from stepwell.job where state = 'running'"


@pytest.mark.slow
def test_outcomes_are_kept_until_the_disk_has_room_again(witness: psycopg.Connection[Any], fleet: Fleet) -> None:
    witness.execute(_FULL)
    workers = [fleet.start(), fleet.start()]
    for task in ("plain", "paid", "paid_plain"):
        enqueue(witness, task, 20)
    enqueue(witness, "quick", 6500)
    # With so many outcomes to write they stop claiming, each at twice what it may ever hold.
    still = time.monotonic()
    running = 0

    def paused() -> bool:
        nonlocal running, still
        now = count(witness, _RUNNING)
        if now != running:
            running, still = now, time.monotonic()
        return running > 0 and time.monotonic() > still + 1.5

    until(paused, "nothing more is claimed")
    assert 2000 < running < 6400
    assert count(witness, "select count(*) from stepwell.job where state = 'ready'") > 0
    assert count(witness, "select count(*) from stepwell.history") == 0

    witness.execute("drop trigger full_disk on stepwell.history")
    until(lambda: not left(witness), "all jobs are done")
    assert all(worker.heard("DatabaseBack") for worker in workers)
    # Those that commit with their job met the full disk themselves.
    audit(witness, failures={"error"})
    again = "select count(*) from stepwell.history where epoch <> 1 and task not in ('paid', 'paid_plain')"
    assert count(witness, again) == 0
