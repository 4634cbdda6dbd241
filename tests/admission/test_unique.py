"""Unique jobs: how long a key is taken, and what an enqueue does that finds it taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from pydantic import BaseModel

from stepwell import (
    App,
    BadArgs,
    Cancel,
    ConfigError,
    Context,
    Fail,
    Fair,
    JobExists,
    JobFailed,
    JobNotFound,
    Limit,
    Restart,
    Retry,
    Snooze,
    Unique,
    Worker,
)
from tests.waiting import auntil

Connection = psycopg.Connection[Any]


def keys(conn: Connection) -> list[tuple[str, UUID, bool]]:
    return conn.execute("select key, job_id, live from stepwell.unique_key order by key").fetchall()


def live(conn: Connection) -> int:
    [row] = conn.execute("select count(*) from stepwell.job").fetchall()
    return row[0]


def set_clock(conn: Connection, ahead: str) -> None:
    conn.execute("delete from stepwell.clock")
    conn.execute("insert into stepwell.clock select clock_timestamp() + %s::interval", (ahead,))


# How long a key is taken.


async def test_a_key_is_taken_while_the_job_is_live_and_then_free(app: App, conn: Connection) -> None:
    @app.task(unique="{user}")
    async def sync(user: str) -> str:
        return user

    first = await sync.aenqueue("ada")
    again = await sync.aenqueue("ada")
    other = await sync.aenqueue("bob")
    assert (first.inserted, again.inserted, other.inserted) == (True, False, True)
    assert first.id == again.id != other.id
    async with Worker(app):
        assert await again.aresult(timeout="20s") == "ada"
        await other.aresult(timeout="20s")
        assert keys(conn) == []
        assert (await sync.aenqueue("ada")).inserted


async def test_a_key_is_taken_while_the_job_runs_waits_and_is_retried(app: App, conn: Connection) -> None:
    go = asyncio.Event()

    @app.task(unique="{n}")
    async def work(ctx: Context, n: int) -> None:
        if ctx.attempt == 1:
            raise ValueError("again")
        if n == 2:
            await ctx.sleep("1h")
        await go.wait()

    jobs = [await work.aenqueue(n) for n in (1, 2)]
    async with Worker(app):
        await auntil(lambda: conn.execute("select count(*) from stepwell.job where attempt = 1").fetchone() == (2,))
        assert not (await work.aenqueue(1)).inserted
        for job in jobs:
            await job.aretry()
        await auntil(lambda: conn.execute("select 1 from stepwell.job where state = 'waiting'").fetchone())
        assert [(await work.aenqueue(n)).inserted for n in (1, 2)] == [False, False]
        go.set()
        await jobs[0].aresult(timeout="20s")


@pytest.mark.parametrize("ends", ["succeeds", "fails", "cancels", "is cancelled", "is cancelled while it runs"])
async def test_every_end_frees_the_key(app: App, conn: Connection, ends: str) -> None:
    @app.task(unique="{n}", retry=Retry(max_attempts=1))
    async def work(n: int) -> None:
        match ends:
            case "fails":
                raise ValueError("no")
            case "cancels":
                raise Cancel("no")
            case "is cancelled while it runs":
                await job.acancel()
                await asyncio.sleep(60)
            case _:
                pass

    job = await work.aenqueue(1)
    if ends == "is cancelled":
        assert await job.acancel()
    else:
        async with Worker(app):
            await auntil(lambda: live(conn) == 0)
    assert keys(conn) == []
    assert (await work.aenqueue(1)).inserted


async def test_until_start_one_may_run_and_one_wait(app: App, conn: Connection) -> None:
    go = asyncio.Event()

    @app.task(unique=Unique("{n}", until="start"))
    async def work(n: int) -> None:
        await go.wait()

    first = await work.aenqueue(1)
    assert not (await work.aenqueue(1)).inserted
    async with Worker(app, concurrency=1):
        await auntil(lambda: conn.execute("select 1 from stepwell.job where state = 'running'").fetchone())
        second = await work.aenqueue(1)
        third = await work.aenqueue(1)
        assert second.inserted
        assert second.id != first.id
        assert third.id == second.id
        go.set()
        await second.aresult(timeout="20s")
    assert keys(conn) == []


async def test_a_period_outlives_the_job_and_its_result_is_found(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{request}", period="24h"))
    async def charge(request: str, cents: int) -> int:
        return cents

    paid = await charge.aenqueue("r1", 500)
    async with Worker(app):
        assert await paid.aresult(timeout="20s") == 500
    twice = await charge.aenqueue("r1", 500)
    assert twice.id == paid.id
    assert not twice.inserted
    assert await twice.aresult(timeout="60s") == 500
    set_clock(conn, "25 hours")
    assert (await charge.aenqueue("r1", 500)).inserted


async def test_a_period_outlives_a_job_that_is_no_longer_kept(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{request}", period="24h"), keep="1h")
    async def charge(request: str) -> int:
        return 500

    paid = await charge.aenqueue("r1")
    async with Worker(app):
        await paid.aresult(timeout="20s")
    set_clock(conn, "2 hours")
    conn.execute("select stepwell.prune()")
    twice = await charge.aenqueue("r1")
    assert (twice.id, twice.inserted) == (paid.id, False)
    with pytest.raises(JobNotFound, match="its history is no longer kept"):
        await twice.aresult(timeout="1s")
    assert (await twice.awhy()).cause == "not_found"
    assert not await twice.acancel()
    assert not await twice.aretry()
    set_clock(conn, "25 hours")
    assert (await charge.aenqueue("r1")).inserted


async def test_a_key_with_a_period_stays_taken_if_the_job_is_still_live_after_it(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h"))
    async def work(n: int) -> None: ...

    job = await work.aenqueue(1)
    set_clock(conn, "2 hours")
    assert not (await work.aenqueue(1)).inserted
    assert await job.acancel()
    assert (await work.aenqueue(1)).inserted


async def test_a_cancel_frees_a_key_within_its_period_and_a_failure_does_not(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h"), retry=Retry(max_attempts=1))
    async def work(n: int) -> None:
        raise Fail("no")

    cancelled = await work.aenqueue(1)
    await cancelled.acancel()
    failed = await work.aenqueue(1)
    assert failed.inserted
    async with Worker(app):
        with pytest.raises(JobFailed):
            await failed.aresult(timeout="20s")
    again = await work.aenqueue(1)
    assert not again.inserted
    with pytest.raises(JobFailed):
        await again.aresult(timeout="20s")


async def test_the_first_wins_for_the_period_of_a_throttle_whether_it_is_live_or_not(
    app: App, conn: Connection
) -> None:
    @app.task(unique=Unique("{n}", period="1h", on_conflict="throttle"))
    async def work(n: int) -> None: ...

    first = await work.aenqueue(1)
    assert not (await work.aenqueue(1)).inserted
    set_clock(conn, "2 hours")
    second = await work.aenqueue(1)
    assert second.inserted
    async with Worker(app):
        await auntil(lambda: live(conn) == 0)
    third = await work.aenqueue(1)
    assert (third.id, third.inserted) == (second.id, False)
    assert first.id != second.id


async def test_expired_keys_are_pruned(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1h"))
    async def work(n: int) -> None: ...

    await work.aenqueue_many([{"n": n} for n in range(10)])
    async with Worker(app):
        await auntil(lambda: live(conn) == 0)
    assert len(keys(conn)) == 10
    waiting = await work.aenqueue(11)
    set_clock(conn, "2 hours")
    assert conn.execute("select stepwell.prune_keys(4)").fetchone() == (4,)
    assert conn.execute("select stepwell.prune_keys()").fetchone() == (6,)
    assert [job_id for _, job_id, _ in keys(conn)] == [waiting.id]


async def test_a_worker_that_leads_prunes_expired_keys(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", period="1s"))
    async def work(n: int) -> None: ...

    job = await work.aenqueue(1)
    async with Worker(app):
        await job.aresult(timeout="20s")
        set_clock(conn, "1 hour")
    async with Worker(app):
        await auntil(lambda: keys(conn) == [])


async def test_restart_and_snooze_keep_the_key(app: App, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def work(n: int, again: bool = True) -> Restart | None:
        if again:
            return Restart(n, again=False)
        raise Snooze("1h")

    job = await work.aenqueue(1)
    async with Worker(app):
        await auntil(lambda: conn.execute("select 1 from stepwell.job where state = 'scheduled'").fetchone())
    assert keys(conn) == [('["task","work","1"]', job.id, True)]


# What an enqueue does that finds the key taken.


async def test_raise_has_the_handle_of_the_existing_job(app: App, conn: Connection) -> None:
    @app.task(unique="{doc}", on_conflict="raise")
    async def index(doc: str) -> str:
        return doc

    first = await index.aenqueue("d1")
    with pytest.raises(JobExists, match="d1") as caught:
        await index.aenqueue("d1")
    assert caught.value.job == first
    assert not caught.value.job.inserted
    async with Worker(app):
        assert await caught.value.job.aresult(timeout="20s") == "d1"
    assert live(conn) == 0


async def test_concurrent_enqueues_that_raise_fail_alone(app: App, conn: Connection) -> None:
    @app.task(unique="{n}", on_conflict="raise")
    async def work(n: int) -> None: ...

    await work.aenqueue(3)
    found = await asyncio.gather(*(work.aenqueue(n % 10) for n in range(30)), return_exceptions=True)
    assert sum(isinstance(each, JobExists) for each in found) == 21
    assert live(conn) == 10


async def test_two_items_with_one_key_are_named_as_such(app: App, conn: Connection) -> None:
    @app.task(unique="{n}", on_conflict="raise")
    async def work(n: int) -> None: ...

    with pytest.raises(JobExists, match=r'^two items of the list have the unique key .*"7"') as caught:
        await work.aenqueue_many([{"n": 7}, {"n": 7}])
    assert await caught.value.job.aexists() is False
    with pytest.raises(JobExists, match=r'^two calls of the group have the unique key .*"7"') as caught:
        await app.agroup([work.call(7), work.call(7)])
    assert await caught.value.job.aexists() is False
    assert live(conn) == 0
    first = await work.aenqueue(7)
    with pytest.raises(JobExists, match=f"^job {first.id} has the unique key"):
        await work.aenqueue_many([{"n": 7}, {"n": 7}])
    with pytest.raises(JobExists, match=f"^job {first.id} has the unique key") as caught:
        await app.agroup([work.call(7), work.call(7)])
    assert caught.value.job == first


async def test_a_batch_that_raises_enqueues_nothing(app: App, conn: Connection) -> None:
    @app.task(unique="{n}", on_conflict="raise")
    async def work(n: int) -> None: ...

    first = await work.aenqueue(7)
    with pytest.raises(JobExists) as caught:
        await work.aenqueue_many([{"n": n} for n in range(10)])
    assert caught.value.job == first
    with pytest.raises(JobExists):
        await work.aenqueue_many([{"n": 20}, {"n": 20}])
    with pytest.raises(JobExists):
        await work.aenqueue_many([{"n": 100 + n % 4000} for n in range(4001)])
    assert live(conn) == 1
    assert len(keys(conn)) == 1


async def test_replace_gives_new_args_and_options_to_a_job_that_has_not_started(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{user}", on_conflict="replace"))
    async def draft(user: str, text: str) -> str:
        return text

    first = await draft.using(metadata={"v": 1}, delay="1h").aenqueue("ada", "one")
    again = await draft.using(metadata={"v": 2}, priority=5, max_attempts=2, timeout="7s").aenqueue("ada", "two")
    assert again.id == first.id
    assert not again.inserted
    info = await first.ainfo()
    assert info is not None
    assert (info.args, info.metadata, info.priority, info.max_attempts, info.state) == (
        {"user": "ada", "text": "two"}, {"v": 2}, 5, 2, "scheduled",
    )  # fmt: skip
    policies = conn.execute("select policy, admission from stepwell.job").fetchall()
    assert policies == [({"timeout": 7.0}, {"unique": {"key": '["task","draft","ada"]', "conflict": "replace"}})]
    await first.arun_now()
    async with Worker(app):
        assert await again.aresult(timeout="20s") == "two"


async def test_replace_leaves_a_job_that_has_started(app: App, conn: Connection) -> None:
    go = asyncio.Event()

    @app.task(unique=Unique("{user}", on_conflict="replace"))
    async def draft(user: str, text: str) -> str:
        await go.wait()
        return text

    first = await draft.aenqueue("ada", "one")
    async with Worker(app):
        await auntil(lambda: conn.execute("select 1 from stepwell.job where state = 'running'").fetchone())
        again = await draft.aenqueue("ada", "two")
        assert (again.id, again.inserted) == (first.id, False)
        go.set()
        assert await again.aresult(timeout="20s") == "one"


async def test_a_replaced_job_keeps_its_place_and_a_new_priority_moves_it(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", on_conflict="replace"))
    async def work(n: int, text: str = "") -> None:
        ran.append((n, text))

    ran: list[tuple[int, str]] = []
    for n in range(4):
        await work.aenqueue(n)
    await work.aenqueue(1, "new")
    await work.using(priority=1).aenqueue(3, "first")
    async with Worker(app, concurrency=1):
        await auntil(lambda: live(conn) == 0)
    assert ran == [(3, "first"), (0, ""), (1, "new"), (2, "")]


async def test_a_replaced_job_follows_the_limit_of_its_new_args(app: App, conn: Connection) -> None:
    go = asyncio.Event()
    ran: list[str] = []

    @app.task(unique=Unique("{n}", on_conflict="replace"), limit=Limit(1, key="tenant-{tenant}"))
    async def work(n: int, tenant: str) -> None:
        ran.append(f"{n}{tenant}")
        await go.wait()

    await work.aenqueue(1, "a")
    await work.aenqueue(2, "a")
    await work.aenqueue(3, "a")
    async with Worker(app, concurrency=10):
        await auntil(lambda: ran == ["1a"])
        # The second leaves the line of "a", in which the third moves up.
        await work.aenqueue(2, "b")
        await auntil(lambda: ran == ["1a", "2b"])
        assert conn.execute("select key, count(*) from stepwell.permit group by key order by key").fetchall() == [
            ("tenant-a", 1), ("tenant-b", 1),
        ]  # fmt: skip
        go.set()
        await auntil(lambda: live(conn) == 0)
    assert ran == ["1a", "2b", "3a"]
    assert conn.execute("select count(*) from stepwell.permit").fetchone() == (0,)


async def test_a_replaced_job_that_was_admitted_gives_its_permit_to_the_next(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{n}", on_conflict="replace"), limit=Limit(1, key="tenant-{tenant}"))
    async def work(n: int, tenant: str) -> None: ...

    await work.aenqueue(1, "a")
    await work.aenqueue(2, "a")
    conn.execute("select stepwell.admit_keys('{tenant-a}')")
    await work.aenqueue(1, "b")
    conn.execute("select stepwell.admit_keys('{tenant-a,tenant-b}')")
    rows = conn.execute("select state::text, admission #>> '{limits,0,key}' from stepwell.job order by id").fetchall()
    assert rows == [("ready", "tenant-b"), ("ready", "tenant-a")]


async def test_a_replaced_job_keeps_its_turn_unless_its_fair_key_changes(app: App, conn: Connection) -> None:
    ran: list[str] = []

    @app.task(unique=Unique("{n}", on_conflict="replace"), fair=Fair("{tenant}"))
    async def work(n: int, tenant: str, text: str = "") -> None:
        ran.append(f"{n}{tenant}{text}")

    for n in range(4):
        await work.aenqueue(n, "big")
    await work.aenqueue(1, "big", "new")
    await work.aenqueue(3, "small")
    async with Worker(app, concurrency=1):
        await auntil(lambda: live(conn) == 0)
    assert [each for each in ran if "big" in each] == ["0big", "1bignew", "2big"]
    assert ran.index("3small") <= 1


async def test_reschedule_pushes_the_job_back_but_not_beyond_max_wait(app: App, conn: Connection) -> None:
    @app.task(unique=Unique("{doc}", on_conflict="reschedule", max_wait="10m"))
    async def save(doc: str, text: str) -> str:
        return text

    def waits() -> int:
        rows = conn.execute("select extract(epoch from run_at - enqueued_at)::integer from stepwell.job").fetchall()
        return rows[0][0]

    set_clock(conn, "0s")
    first = await save.using(delay="5m").aenqueue("d", "one")
    assert waits() == 300
    conn.execute("update stepwell.clock set at = at + interval '4 minutes'")
    again = await save.using(delay="5m").aenqueue("d", "two")
    assert (again.id, again.inserted) == (first.id, False)
    assert waits() == 540
    conn.execute("update stepwell.clock set at = at + interval '4 minutes'")
    await save.using(delay="5m").aenqueue("d", "three")
    assert waits() == 600
    conn.execute("update stepwell.clock set at = at + interval '4 minutes'")
    await save.using(delay="5m").aenqueue("d", "four")
    assert waits() == 600
    assert conn.execute("select state::text from stepwell.job").fetchone() == ("ready",)
    async with Worker(app):
        assert await first.aresult(timeout="20s") == "four"


async def test_reschedule_takes_a_ready_job_out_of_the_queue_and_a_blocked_one_out_of_its_line(
    app: App, conn: Connection
) -> None:
    @app.task(unique=Unique("{n}", on_conflict="reschedule"), limit=Limit(1, key="one"))
    async def work(n: int) -> None: ...

    await work.aenqueue(1)
    await work.aenqueue(2)
    conn.execute("select stepwell.admit_keys('{one}')")
    for n in (1, 2):
        await work.using(delay="1h").aenqueue(n)
    rows = conn.execute("select state::text, blocked_by from stepwell.job").fetchall()
    assert rows == [("scheduled", None)] * 2
    assert conn.execute("select count(*) from stepwell.permit").fetchone() == (0,)


async def test_a_worker_wakes_for_a_job_that_is_rescheduled_to_an_earlier_time(app: App) -> None:
    @app.task(unique=Unique("{n}", on_conflict="reschedule"))
    async def work(n: int) -> int:
        return n

    async with Worker(app):
        job = await work.using(delay="1h").aenqueue(1)
        await work.aenqueue(1)
        assert await job.aresult(timeout="60s") == 1


# Batches.


async def test_equal_keys_in_one_batch_are_in_conflict_with_the_first(app: App, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def work(n: int, text: str = "") -> None: ...

    @app.task(unique=Unique("{n}", on_conflict="replace"))
    async def edit(n: int, text: str = "") -> None: ...

    one, two, three = await work.aenqueue_many([{"n": 1, "text": "a"}, {"n": 2}, {"n": 1, "text": "b"}])
    assert [one.inserted, two.inserted, three.inserted] == [True, True, False]
    assert three.id == one.id
    first, second, third = await edit.aenqueue_many([{"n": 1, "text": str(n)} for n in range(3)])
    assert first.id == second.id == third.id
    rows = conn.execute("select task, args ->> 'text' from stepwell.job order by id").fetchall()
    assert rows == [("work", "a"), ("work", None), ("edit", "2")]


async def test_a_mixed_batch_of_several_tasks_has_the_right_handles(app: App, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def one(n: int) -> None: ...

    @app.task
    async def plain(n: int) -> None: ...

    known = await one.aenqueue(1)
    jobs = await app.aenqueue_many([plain.call(1), one.call(1), one.call(2), plain.call(2)])
    assert [job.inserted for job in jobs] == [True, False, True, True]
    assert jobs[1] == known
    assert len({job.id for job in jobs}) == 4
    assert live(conn) == 4


@pytest.mark.parametrize("taken", [{299}, {150, 299}, set(range(100, 300))])
async def test_a_list_whose_first_keys_are_new_finds_those_behind_them_that_are_taken(
    app: App, conn: Connection, taken: set[int]
) -> None:
    @app.task(unique="{n}")
    async def work(n: int) -> None: ...

    known = {n: await work.aenqueue(n) for n in sorted(taken, reverse=True)}
    jobs = await work.aenqueue_many([{"n": n} for n in range(300)])
    assert [job.inserted for job in jobs] == [n not in taken for n in range(300)]
    assert {n: jobs[n] for n in taken} == known
    rows = conn.execute(
        "select (j.args ->> 'n')::integer, k.key from stepwell.job j, stepwell.unique_key k"
        " where k.job_id = j.id and k.key = j.admission #>> '{unique,key}'"
    ).fetchall()
    assert sorted(rows) == [(n, f'["task","work","{n}"]') for n in range(300)]


async def test_a_list_does_not_wait_for_a_transaction_that_may_free_one_of_its_keys(
    app: App, conn: Connection, dsn: str
) -> None:
    @app.task(unique="{n}")
    async def work(n: int) -> None: ...

    known = await work.aenqueue(250)
    with psycopg.connect(dsn) as other:
        other.execute("delete from stepwell.unique_key")
        other.execute("delete from stepwell.job")
        # Not within the transaction: it stays open until the list is there.
        jobs = await asyncio.wait_for(work.aenqueue_many([{"n": n} for n in range(300)]), 30)
        other.rollback()
    assert [job.inserted for job in jobs] == [n != 250 for n in range(300)]
    assert jobs[250] == known
    assert live(conn) == 300


async def test_long_lists_are_unique_over_their_batches_and_in_order(app: App, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def work(n: int) -> None: ...

    jobs = await work.aenqueue_many([{"n": n % 3000} for n in range(7000)])
    assert [job.inserted for job in jobs] == [n < 3000 for n in range(7000)]
    assert [job.id for job in jobs[3000:6000]] == [job.id for job in jobs[:3000]]
    rows = conn.execute("select (args ->> 'n')::integer from stepwell.job order by run_at, id").fetchall()
    assert [n for (n,) in rows] == list(range(3000))
    assert conn.execute(
        "select count(*) from stepwell.unique_key k join stepwell.job j on j.id = k.job_id"
    ).fetchone() == (3000,)


def test_the_sync_calls_do_the_same(dsn: str, conn: Connection) -> None:
    with App(dsn) as app:

        @app.task(unique="{n}", on_conflict="raise")
        def work(n: int) -> None: ...

        first = work.enqueue(1)
        with pytest.raises(JobExists) as caught:
            work.enqueue(1)
        assert caught.value.job == first
        with pytest.raises(JobExists):
            work.enqueue_many([{"n": 2}, {"n": 1}])
        [two] = work.enqueue_many([{"n": 2}])
        assert two.inserted
        assert live(conn) == 2


# Keys and scopes.


@dataclass
class Order:
    id: int


async def test_a_template_reads_attributes_and_items(app: App) -> None:
    @app.task(unique="{order.id}-{tags[0]}-{names[first]}")
    async def ship(order: Order, tags: list[str], names: dict[str, str]) -> None: ...

    first = await ship.aenqueue(Order(1), ["a", "b"], {"first": "x"})
    again = await ship.aenqueue(Order(1), ["a", "c"], {"first": "x", "last": "y"})
    other = await ship.aenqueue(Order(2), ["a"], {"first": "x"})
    assert first.id == again.id != other.id
    with pytest.raises(BadArgs, match="cannot be filled in"):
        await ship.aenqueue(Order(1), [], {"first": "x"})


async def test_all_arguments_are_the_key_however_they_are_given(app: App) -> None:
    @app.task(unique=True)
    async def work(a: int, b: int = 2, tags: set[str] | None = None, m: dict[str, int] | None = None) -> None: ...

    first = await work.aenqueue(1, tags={"x", "y", "z"}, m={"p": 1, "q": 2})
    again = await work.aenqueue(m={"q": 2, "p": 1}, tags={"z", "y", "x"}, b=2, a=1)
    other = await work.aenqueue(1, 3)
    assert first.id == again.id != other.id


async def test_dicts_whose_keys_are_not_text_are_part_of_the_key(app: App) -> None:
    @app.task(unique=True)
    async def work(counts: dict[int, set[int]], days: dict[datetime, int]) -> None: ...

    days = {UTC_NOON: 1}
    assert (await work.aenqueue({1: {3, 4}, 2: set()}, days)).inserted
    assert not (await work.aenqueue({2: set(), 1: {4, 3}}, days)).inserted
    assert (await work.aenqueue({1: {3}, 2: set()}, days)).inserted
    assert (await work.aenqueue({1: {3}, 2: set()}, {UTC_NOON.astimezone(BERLIN): 1})).inserted


class Meeting(BaseModel):
    at: datetime
    others: dict[str, list[datetime]]
    note: str = ""


@dataclass
class Visit:
    at: datetime


UTC_NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))


async def test_equal_times_in_different_zones_are_one_key(app: App) -> None:
    @app.task(unique="{at}")
    async def plain(at: datetime) -> None: ...

    @app.task(unique="{visit.at!s}-{days[0]}")
    async def inside(visit: Visit, days: list[datetime]) -> None: ...

    @app.task(unique="{at:%d}")
    async def by_day(at: datetime) -> None: ...

    @app.task(unique=True)
    async def everything(
        at: datetime,
        visits: list[Visit],
        by_number: dict[int, set[datetime]],
        meeting: Meeting,
        note: str = "",
    ) -> None: ...

    same = [UTC_NOON, UTC_NOON.astimezone(BERLIN), UTC_NOON.astimezone(timezone(-timedelta(hours=3, minutes=30)))]
    naive = UTC_NOON.replace(tzinfo=None)
    edge = datetime.min.replace(tzinfo=BERLIN)  # it is not in UTC, where the year would be 0
    later = timedelta(minutes=30)
    assert [(await plain.aenqueue(at)).inserted for at in (*same, naive, edge)] == [True, False, False, True, True]
    assert [(await inside.aenqueue(Visit(at), [at])).inserted for at in same] == [True, False, False]
    midnight = datetime(2030, 1, 2, tzinfo=BERLIN)
    assert (await by_day.aenqueue(midnight)).inserted
    assert (await by_day.aenqueue(midnight.astimezone(UTC))).inserted

    def arguments(at: datetime, **fields: Any) -> tuple[Any, ...]:
        return (
            at,
            [Visit(at + later)],
            {2: {at, at + later}, 1: set[datetime]()},
            Meeting(at=at, others={"x": [at, naive]}, **fields),
        )

    assert [(await everything.aenqueue(*arguments(at))).inserted for at in same] == [True, False, False]
    assert (await everything.aenqueue(*arguments(UTC_NOON + later))).inserted
    # Text is text, also where it looks like a time.
    texts = [at.isoformat() for at in same]
    assert [(await everything.aenqueue(*arguments(same[1]), note=text)).inserted for text in texts] == [True] * 3
    assert [(await everything.aenqueue(*arguments(same[1], note=text))).inserted for text in texts] == [True] * 3


async def test_arguments_that_are_written_differently_are_different_keys(app: App) -> None:
    @app.task(unique=True)
    async def real(n: float) -> None: ...

    @app.task(unique=True)
    async def loose(n: Any) -> None: ...

    @app.task(unique="{amount}")
    async def pay(amount: Decimal) -> None: ...

    @app.task(unique="{amount:.2f}")
    async def pay_cents(amount: Decimal) -> None: ...

    assert [(await real.aenqueue(n)).inserted for n in (1, 1.0)] == [True, False]
    assert [(await loose.aenqueue(n)).inserted for n in (1, 1.0, True)] == [True, True, True]
    assert [(await pay.aenqueue(Decimal(n))).inserted for n in ("1.0", "1.00")] == [True, True]
    assert [(await pay_cents.aenqueue(Decimal(n))).inserted for n in ("1.0", "1.00")] == [True, False]


def test_a_template_that_fits_no_argument_is_refused_where_the_task_is_defined(dsn: str) -> None:
    app = App(dsn)

    async def work(user: str) -> None: ...

    wrong: list[tuple[Any, str]] = [
        ("everybody", "names no argument"),
        ("{users}", "the arguments are user"),
        ("{users.id}", "the arguments are user"),
        ("{}", "the arguments are user"),
        ("{0}", "the arguments are user"),
        ("{user", "no template"),
        ("{user:zz}", "no format"),
        ("{user.}", "no value"),
        ("{user}\0", "NUL"),
        ("", "give text"),
        (False, "give a template"),
        (7, "give a template"),
        (Unique("everybody"), "names no argument"),
    ]
    for unique, why in wrong:
        with pytest.raises(ConfigError, match=why):
            app.task(unique=unique)(work)
    makers: list[Callable[[], Unique]] = [
        lambda: Unique("{user}", period="0s"),
        lambda: Unique("{user}", on_conflict="throttle"),
        lambda: Unique("{user}", until="start", period="1h"),
        lambda: Unique("{user}", max_wait="1s"),
        lambda: Unique("{user}", max_wait="1s", on_conflict="replace"),
        lambda: Unique("{user}", on_conflict="perhaps"),  # type: ignore[arg-type]
        lambda: Unique("{user}", scope="world"),  # type: ignore[arg-type]
    ]
    for make in makers:
        with pytest.raises(ConfigError):
            make()
    with pytest.raises(ConfigError, match="no unique="):
        app.task(on_conflict="raise")(work)
    assert not app.tasks


async def test_using_gives_a_key_that_is_no_template(app: App) -> None:
    @app.task
    async def plain(n: int) -> None: ...

    first = await plain.using(unique="{n}").aenqueue(1)
    again = await plain.using(unique="{n}").aenqueue(2)
    assert (first.id, again.inserted) == (again.id, False)
    assert (await plain.aenqueue(1)).inserted
    raising = plain.using(unique=Unique("{n}", on_conflict="raise"))
    with pytest.raises(JobExists):
        await raising.aenqueue(3)


async def test_a_key_is_of_its_task_unless_its_scope_is_wider(app: App, conn: Connection) -> None:
    @app.task
    async def one(n: int) -> int:
        return n

    @app.task
    async def two(s: str) -> str:
        return s

    assert (await one.using(unique="k").aenqueue(1)).inserted
    assert (await two.using(unique="k").aenqueue("x")).inserted
    of_queue = Unique("k", scope="queue")
    first = await one.using(unique=of_queue).aenqueue(7)
    found = await two.using(unique=of_queue).aenqueue("x")
    assert (found.id, found.inserted) == (first.id, False)
    assert (await two.using(unique=of_queue, queue="other").aenqueue("x")).inserted
    of_all = Unique("k", scope="database")
    assert (await one.using(unique=of_all).aenqueue(1)).inserted
    assert not (await two.using(unique=of_all, queue="other").aenqueue("x")).inserted
    async with Worker(app):
        # The job may be of another task, so its result is plain JSON.
        assert await found.aresult(timeout="20s") == 7


async def test_replace_with_a_wider_scope_replaces_the_task_too(app: App) -> None:
    @app.task
    async def one(n: int) -> int:
        return n

    @app.task
    async def two(s: str) -> str:
        return s

    rule = Unique("k", scope="database", on_conflict="replace")
    await one.using(unique=rule).aenqueue(1)
    job = await two.using(unique=rule).aenqueue("x")
    async with Worker(app):
        assert await job.aresult(timeout="20s") == "x"


async def test_hostile_keys_are_as_different_as_they_are(app: App, conn: Connection) -> None:
    @app.task
    async def work() -> None: ...

    @app.task(name='work","')
    async def other() -> None: ...

    control = [chr(n) for n in range(1, 0x30)] + ["\x7f", "\x85", "\u2028", "\u200b", "\ufeff", "\uffff", "\U0010ffff"]
    texts = [
        *control, "a", "A", "a ", " a", "\u00e1", "a\u0301", "\u00c5", "\u212b", "{}", "{n}", "\\", "\\u0001", "$1",
        "x" * 199, "x" * 200, "x" * 201, "x" * 5000, "x" * 4999 + "y", "\U0001f600" * 300, '"' * 300, "\x01" * 300,
    ]  # fmt: skip
    assert len(texts) == len(set(texts))
    uniques = [Unique(text, scope=scope) for text in texts for scope in ("task", "queue", "database")]
    calls = [each.using(unique=unique).call() for unique in uniques for each in (work, other)]
    jobs = await app.aenqueue_many(calls)
    # Each key is new, except that two tasks share those of a wider scope.
    assert [job.inserted for job in jobs] == [new for unique in uniques for new in (True, unique.scope == "task")]
    assert not any(job.inserted for job in await app.aenqueue_many(calls))
    for text in texts:
        [(found,)] = conn.execute("select stepwell.enqueue('work', unique_key => %s)", (text,)).fetchall()
        assert found in {job.id for job in jobs}, text
    for bad in ("", "a\0b", "\ud800"):
        with pytest.raises(BadArgs):
            work.using(unique=bad)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        conn.execute("select stepwell.enqueue('work', unique_key => '')")


async def test_a_long_key_of_a_template_is_the_key_of_using_and_of_sql(app: App, conn: Connection) -> None:
    @app.task(unique="{text}")
    async def work(text: str) -> None: ...

    text = "é" * 500
    first = await work.aenqueue(text)
    assert (await work.using(unique=text).aenqueue("other")).id == first.id
    [(found,)] = conn.execute(
        "select stepwell.enqueue('work', jsonb_build_object('text', 'x'), unique_key => %s)", (text,)
    ).fetchall()
    assert found == first.id


def test_sql_enqueues_with_a_unique_key(conn: Connection) -> None:
    def enqueue(task: str, key: str | None) -> UUID:
        return conn.execute("select stepwell.enqueue(%s, '{}', unique_key => %s)", (task, key)).fetchall()[0][0]

    assert enqueue("work", "k") == enqueue("work", "k")
    assert enqueue("work", "k") != enqueue("other", "k")
    assert enqueue("work", None) != enqueue("work", None)
    conn.execute("select stepwell.cancel(array[%s::uuid])", (enqueue("work", "k"),))
    assert live(conn) == 3
    enqueue("work", "k")
    assert live(conn) == 4


@dataclass
class Noted:
    id: int
    note: str = ""


@dataclass(frozen=True)
class Parcel:
    order: Noted
    kind: str = "box"


async def test_a_field_that_is_left_out_and_one_that_is_given_its_default_make_one_key(app: App) -> None:
    @app.task(unique=True)
    async def bill(order: Noted, parcels: list[Parcel], by: dict[str, Noted | None]) -> None: ...

    order = msgspec.json.decode(b'{"id": 1}', type=Noted)
    parcel = msgspec.json.decode(b'{"order": {"id": 1}}', type=Parcel)
    given = [
        await bill.aenqueue(Noted(1), [Parcel(Noted(1))], {"ada": Noted(1)}),
        await bill.aenqueue(order, [parcel], {"ada": order}),
        await bill.aenqueue(Noted(1, "late"), [parcel], {"ada": order}),
        await bill.aenqueue(order, [Parcel(Noted(1, "late"))], {"ada": order}),
    ]
    assert [job.inserted for job in given] == [True, False, True, True]
