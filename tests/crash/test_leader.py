"""The leader is killed, hangs, shares its post or cannot do a duty: what is due goes on, at its time and once."""

from __future__ import annotations

import random
import re
import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.worker.upkeep.ticker import due_ticks

from .audit import audit, count, enqueue, started
from .fleet import Fleet, WorkerProcess, until
from .timetable import LEASE, SLACK, Timetable

pytestmark = pytest.mark.crash


@pytest.fixture
def timetable(witness: psycopg.Connection[Any]) -> Timetable:
    return Timetable(witness)


def leads(witness: psycopg.Connection[Any], worker: WorkerProcess) -> bool:
    leader = "select count(*) from stepwell.leader l join stepwell.worker w on w.id = l.worker_id where w.pid = %s"
    return count(witness, leader, worker.pid) == 1


def start_leader(witness: psycopg.Connection[Any], fleet: Fleet) -> WorkerProcess:
    worker = fleet.start()
    until(lambda: leads(witness, worker), "it leads")
    return worker


def start_others(fleet: Fleet) -> list[WorkerProcess]:
    others = [fleet.launch(), fleet.launch()]
    for other in others:
        until(other.has_started, "the others have started")
    return others


def test_a_leader_that_is_killed_is_succeeded_and_nothing_that_is_due_is_lost_or_doubled(
    witness: psycopg.Connection[Any], fleet: Fleet, timetable: Timetable
) -> None:
    leader = start_leader(witness, fleet)
    enqueue(witness, "held", 5, until=2)
    until(lambda: started(witness, 1) == 5, "the leader runs them")
    others = start_others(fleet)
    timetable.schedule(0.2)
    timetable.delay(40, 4)
    timetable.await_ticks()

    leader.kill()
    until(lambda: any(leads(witness, other) for other in others), "another leads")
    until(lambda: started(witness, 2) >= 5, "what it ran is rescued")
    timetable.await_ticks()
    timetable.finish()
    audit(witness, failures={"lease_lost"})
    timetable.audit()


@pytest.mark.slow
def test_a_leader_that_is_stopped_is_succeeded_and_does_no_harm_when_it_comes_back(
    witness: psycopg.Connection[Any], fleet: Fleet, timetable: Timetable
) -> None:
    leader = start_leader(witness, fleet)
    others = start_others(fleet)
    timetable.schedule(0.1)
    timetable.delay(60, LEASE + 1)
    timetable.await_ticks()

    leader.send(signal.SIGSTOP)
    timetable.await_ticks()
    until(lambda: any(leads(witness, other) for other in others), "another leads")
    timetable.await_ticks()
    leader.send(signal.SIGCONT)
    until(lambda: [said["leads"] for said in leader.heard("LeaderChanged")] == [True, False], "it knows")
    timetable.await_ticks()
    timetable.finish()
    assert not leader.heard("LeaseLost")
    audit(witness)
    timetable.audit(within=LEASE + SLACK, but_by=[leader.pid])


@pytest.mark.slow
def test_a_leader_whose_event_loop_is_blocked_is_succeeded_and_does_no_harm_when_it_comes_back(
    witness: psycopg.Connection[Any], fleet: Fleet, timetable: Timetable, tmp_path: Path
) -> None:
    leader = start_leader(witness, fleet)
    gate = tmp_path / "gate"
    enqueue(witness, "blocking", 1, gate=str(gate))
    until(lambda: started(witness, 1), "its event loop is blocked")
    others = start_others(fleet)
    timetable.schedule(0.1)
    timetable.delay(60, LEASE)

    timetable.await_ticks()
    until(lambda: any(leads(witness, other) for other in others), "another leads")
    timetable.await_ticks()
    gate.touch()
    until(lambda: [said["leads"] for said in leader.heard("LeaderChanged")] == [True, False], "it knows")
    timetable.await_ticks()
    timetable.finish()
    assert leader.heard("LoopBlocked")
    assert not leader.heard("LeaseLost")
    audit(witness)
    timetable.audit(within=LEASE + SLACK, but_by=[leader.pid])


def deeper_than_a_busy_lock(errors: list[str]) -> list[str]:
    """What waits too long gives way, and is done at the next look: on a busy machine that may be."""
    return [error for error in errors if "lock timeout" not in error]


def fire(connection: psycopg.Connection[Any]) -> None:
    found = fetch(connection, queries.schedules.due_schedules([]))
    due = [schedule for schedule in found if schedule.due_in is not None and schedule.due_in <= 0]
    reckoned = [due_ticks(schedule) for schedule in due]
    [fired] = fetch(
        connection, queries.schedules.tick(due, [after for _, after in reckoned], [ticks for ticks, _ in reckoned])
    )
    # What another holds is left to the next look.
    assert not [why for why in fired.left_why if why is not None]


def rewind(connection: psycopg.Connection[Any]) -> None:
    for schedule in fetch(connection, queries.schedules.schedule_times(None)):
        following = schedule.timing.after(schedule.looked_at)
        assert following is not None
        fetch(connection, queries.schedules.rewind_schedules([schedule], [following]))


def make_partitions(connection: psycopg.Connection[Any], dice: random.Random) -> None:
    fetch(connection, queries.upkeep.make_partitions([dice.randrange(1, 300) * 86400.0]))


def prune(connection: psycopg.Connection[Any], dice: random.Random) -> None:
    """With something to drop, which there is once a day."""
    day = dice.randrange(20100101, 20100131)
    for parent in ("history", "failure"):
        with connection.transaction():
            connection.execute("lock table only stepwell.history in share update exclusive mode")
            connection.execute(
                sql.SQL("create table if not exists {} partition of {} for values from ({}) to ({})").format(
                    sql.Identifier("stepwell", f"{parent}_{day}"),
                    sql.Identifier("stepwell", parent),
                    sql.Literal(str(day)),
                    sql.Literal(str(day + 1)),
                )
            )
    fetch(connection, queries.upkeep.prune())


@pytest.mark.slow
def test_many_who_believe_to_lead_do_every_duty_at_once_and_none_fails(
    witness: psycopg.Connection[Any], fleet: Fleet, timetable: Timetable, dice: random.Random
) -> None:
    victim = fleet.start()
    enqueue(witness, "held", 5, until=2)
    until(lambda: started(witness, 1) == 5, "it runs them")
    fleet.start()
    timetable.schedule(0.1)
    timetable.schedule(0.1, overlap="queue", ms=30)
    timetable.schedule(0.1, overlap="skip", ms=150)
    timetable.schedule(0.1, overlap="replace", ms=150, catchup=1)
    workers = [row[0] for row in witness.execute("select id::text from stepwell.worker")]
    over = threading.Event()

    def lead(seed: int) -> int:
        own = random.Random(seed)
        rounds = 0
        with psycopg.connect(fleet.dsn, autocommit=True) as connection:
            connection.execute("set deadlock_timeout = '100ms'")
            duties: list[Callable[[], object]] = [
                lambda: fetch(connection, queries.upkeep.promote()),
                lambda: fire(connection),
                lambda: connection.execute("select from stepwell.rescue_jobs()"),
                lambda: fetch(connection, queries.schedules.remove_stale_schedules()),
                lambda: fetch(connection, queries.upkeep.admit_stranded()),
                lambda: fetch(connection, queries.upkeep.prune_ticks(10_000)),
                lambda: fetch(connection, queries.upkeep.prune_rows("history_default", 100)),
                lambda: fetch(connection, queries.upkeep.prune_rows("failure_default", 100)),
                lambda: fetch(connection, queries.upkeep.prune_rows("large_value", 100)),
                lambda: fetch(connection, queries.upkeep.prune_signals(100)),
                lambda: connection.execute("select stepwell.deliver_late()"),
                lambda: rewind(connection),
                lambda: fetch(connection, queries.fleet.lead(own.choice(workers), 0.01)),
            ]
            slow: list[Callable[[], object]] = [
                lambda: make_partitions(connection, own),
                lambda: prune(connection, own),
            ]
            while not over.is_set():
                due = [*duties, own.choice(slow)] if rounds % 5 == 0 else duties
                for duty in own.sample(due, len(due)):
                    with suppress(psycopg.errors.LockNotAvailable):
                        duty()
                rounds += 1
        return rounds

    with ThreadPoolExecutor(3) as threads:
        leading = [threads.submit(lead, dice.randrange(2**32)) for _ in range(3)]
        try:
            for _ in range(3):
                timetable.delay(30, 1)
                enqueue(witness, "quick", 20, ms=5)
                enqueue(witness, "sour", 10, until=3)
                timetable.await_ticks(20)
            victim.kill()
            until(lambda: not count(witness, "select count(*) from stepwell.worker where pid = %s", victim.pid), "gone")
            timetable.await_ticks(20)
            enqueue(witness, "quick", 20)
            timetable.finish()
        finally:
            over.set()
        print("rounds:", [each.result() for each in leading])
    said = [said["error"] for worker in fleet.all for said in worker.heard("UpkeepFailed")]
    assert not deeper_than_a_busy_lock(said)
    timetable.audit(within=LEASE + SLACK)


@contextmanager
def broken(witness: psycopg.Connection[Any], function: LiteralString) -> Generator[Callable[[], int]]:
    """Within this, a function of the schema raises. Gives how often it was called."""
    row = witness.execute("select pg_get_functiondef(%s::regproc)", (f"stepwell.{function}",)).fetchone()
    assert row
    witness.execute(sql.SQL("create sequence crash.{} minvalue 0").format(sql.Identifier(function)))
    body = f"begin perform nextval('crash.{function}'); raise exception 'sabotage'; end"
    witness.execute(re.sub(r"(\$function\$).*(\$function\$)", rf"\1{body}\2", row[0], flags=re.DOTALL).encode())
    yield lambda: count(witness, f"select last_value from crash.{function}")
    witness.execute(row[0].encode())


@pytest.mark.slow
def test_a_duty_that_fails_is_said_once_and_stops_no_other(
    witness: psycopg.Connection[Any], fleet: Fleet, timetable: Timetable
) -> None:
    victim = fleet.start()
    enqueue(witness, "held", 5, until=2)
    until(lambda: started(witness, 1) == 5, "it runs them")

    def said(duty: str) -> int:
        return [said["duty"] for said in leader.heard("UpkeepFailed")].count(duty)

    def run_delayed() -> None:
        timetable.delay(5, 0.2)
        delayed = "select count(*) from stepwell.job j join crash.due d on d.job_id = j.id"
        until(lambda: not count(witness, delayed), "delayed jobs have run")

    with broken(witness, "make_partitions") as makings:
        leader = fleet.start()
        timetable.schedule(0.2)
        with broken(witness, "promote") as promotions:
            victim.kill()
            until(lambda: started(witness, 2) == 5, "what the victim ran is rescued")
            timetable.await_ticks()
            until(lambda: promotions() >= 3, "it is tried again and again")
        assert said("promoting due jobs") == 1
        with broken(witness, "due_schedules") as looks:
            run_delayed()
            until(lambda: looks() >= 3, "it is tried again and again")
        assert said("looking for due schedules") == 1
        with broken(witness, "rescue_jobs") as rescues:
            run_delayed()
            timetable.await_ticks()
            until(lambda: rescues() >= 2, "it is tried again")
        assert said("rescuing") == 1
        until(lambda: makings() >= 2, "it is tried again")
        assert said("making partitions") == 1
    timetable.finish()
    audit(witness, failures={"lease_lost"})
    timetable.audit()


_CLOCK = "insert into stepwell.clock (at) values (clock_timestamp() + %s * interval '1 second')"
_FOLLOWED = "select count(*) from stepwell.leader where abs(extract(epoch from lease_until - clock_timestamp())) > 1800"


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_fires_no_tick_twice_and_all_goes_on(
    witness: psycopg.Connection[Any], fleet: Fleet, timetable: Timetable, hours: int
) -> None:
    start_leader(witness, fleet)
    fleet.start()
    timetable.schedule(0.5, catchup=1)
    timetable.schedule(0.5, catchup=1, overlap="queue")
    timetable.delay(20, 2)
    timetable.await_ticks()

    fired = timetable.ticks()
    witness.execute(_CLOCK, (hours * 3600,))
    until(lambda: count(witness, _FOLLOWED), "the fleet goes by the new time")
    if hours > 0:
        until(lambda: timetable.ticks() > fired, "it fires what is due by it")
    witness.execute("delete from stepwell.clock")
    timetable.delay(5, 0.5)
    timetable.await_ticks()
    timetable.finish()
    audit(witness, failures={"lease_lost"})
    # By a clock that is ahead much is due before its time.
    timetable.audit(early=hours > 0)
