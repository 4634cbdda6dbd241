"""Limits and rates by key: listed, and set while jobs run and wait."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, Context, Limit, LimitInfo, Rate, Worker


async def the(app: App, key: str) -> LimitInfo:
    [found] = await app.alimits(key)
    return found


async def test_a_limit_shows_its_numbers_and_who_set_them(app: App) -> None:
    @app.task(limit=Limit(2, key="tenant-{tenant}"))
    async def report(tenant: str) -> None: ...

    assert await app.alimits() == []
    async with Worker(app):
        await app.apause("default")
        for tenant in ("a", "a", "a", "b"):
            await report.aenqueue(tenant)
        await auntil(lambda: _held(app, "tenant-a", 2))
        await auntil(lambda: _held(app, "tenant-b", 1))
    a, b = await app.alimits()
    assert (a.key, a.most, a.held, a.waiting, a.most_is_set, a.set_at) == ("tenant-a", 2, 2, 1, False, None)
    assert (b.key, b.most, b.held, b.waiting) == ("tenant-b", 2, 1, 0)
    assert (a.rate, a.burst, a.rate_is_set, a.next_at) == (None, None, False, None)

    await app.aset_limit("tenant-a", 5)
    a = await the(app, "tenant-a")
    assert (a.most, a.most_is_set) == (5, True)
    assert a.set_at is not None
    await app.aset_limit("tenant-a", None)
    a = await the(app, "tenant-a")
    assert (a.most, a.most_is_set, a.set_at) == (2, False, None)


async def _held(app: App, key: str, count: int) -> bool:
    return [limit.held for limit in await app.alimits(key)] == [count]


async def test_a_limit_that_is_raised_admits_at_once_and_none_that_is_lowered(app: App) -> None:
    running: set[int] = set()
    most: list[int] = []
    end = asyncio.Event()

    @app.task(limit=Limit(1, key="k"))
    async def work(n: int) -> None:
        running.add(n)
        most.append(len(running))
        await end.wait()
        running.remove(n)

    async with Worker(app, concurrency=10):
        jobs = [await work.aenqueue(n) for n in range(6)]
        await auntil(lambda: len(running) == 1)
        await app.aset_limit("k", 3)
        await auntil(lambda: len(running) == 3)
        assert (await the(app, "k")).waiting == 3
        await app.aset_limit("k", 0)
        end.set()
        for job in jobs[:3]:
            await job.aresult(timeout="20s")
        await auntil(lambda: _held(app, "k", 0))
        found = await the(app, "k")
        assert (found.most, found.waiting) == (0, 3)
        await app.aset_limit("k", None)
        for job in jobs[3:]:
            await job.aresult(timeout="20s")
    assert max(most) == 3


async def test_a_limit_that_is_lowered_takes_permits_back_from_jobs_that_have_not_started(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    started: list[int] = []
    end = asyncio.Event()

    @app.task(limit=Limit(100, key="k"))
    async def work(n: int) -> None:
        started.append(n)
        await end.wait()

    async with Worker(app, concurrency=3):
        jobs = await work.aenqueue_many([{"n": n} for n in range(40)])
        await auntil(lambda: _held(app, "k", 40))
        await auntil(lambda: len(started) == 3)
        await app.aset_limit("k", 0)

        async def taken_back() -> bool:
            # Jobs that were claimed and wait in the worker count as running.
            found = await the(app, "k")
            running = conn.execute("select from stepwell.job where state = 'running'").rowcount
            return found.held == running and found.waiting == 40 - running

        await auntil(taken_back)
        claimed = (await the(app, "k")).held
        why = await jobs[-1].awhy()
        assert (why.cause, "the key 'k' has a limit of 0, set at run time" in why.subject) == ("limit", True)
        end.set()
        await auntil(lambda: _held(app, "k", 0))
        await asyncio.sleep(0.2)
        assert (len(started), (await the(app, "k")).waiting) == (claimed, 40 - claimed)
        await app.aset_limit("k", None)
        for job in jobs:
            await job.aresult(timeout="20s")
    # The first in line were left, so the order is kept.
    assert started == list(range(40))


async def test_a_limit_that_is_lowered_a_little_takes_back_the_last_jobs(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task(limit=Limit(6, key="k"))
    async def work(n: int) -> None: ...

    jobs = await work.aenqueue_many([{"n": n} for n in range(8)])
    await work.using(priority=5).aenqueue(8)
    conn.execute("select stepwell.admit_keys(array['k'])")
    ready = "select args ->> 'n' from stepwell.job where state = 'ready' order by rank, run_at, id"
    assert [row[0] for row in conn.execute(ready)] == ["8", "0", "1", "2", "3", "4"]
    await app.aset_limit("k", 3)
    # The first look after a start finds the key, also if no worker heard of the change.
    assert conn.execute("select stepwell.lines()").fetchone() == (["k"],)
    assert conn.execute("select admitted from stepwell.admit_keys(array['k'])").fetchone() == (0,)
    assert [row[0] for row in conn.execute(ready)] == ["8", "0", "1"]
    found = await the(app, "k")
    assert (found.held, found.waiting) == (3, 6)
    await app.aset_limit("k", 0)
    conn.execute("select stepwell.admit_keys(array['k'])")
    # A job that no line knows would be lost.
    await app.aset_limit("k", None)
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")


async def test_a_rate_that_is_lowered_takes_reserved_tokens_back(app: App, conn: psycopg.Connection[Any]) -> None:
    started: list[int] = []
    end = asyncio.Event()

    @app.task(rate=Rate(500, key="api"))
    async def call(n: int) -> None:
        started.append(n)
        await end.wait()

    reserved = "select count(*) from stepwell.permit where rate"
    async with Worker(app, concurrency=3):
        jobs = await call.aenqueue_many([{"n": n} for n in range(60)])
        await auntil(lambda: len(started) == 3)
        await auntil(lambda: conn.execute("select from stepwell.job where state = 'blocked'").rowcount == 0)
        await app.aset_rate("api", Rate(1, per="1h"))
        await auntil(lambda: conn.execute(reserved).fetchone() == (0,))
        why = await jobs[-1].awhy()
        assert (why.cause, "a rate of 1 per hour" in why.subject) == ("rate", True)
        claimed = 60 - (await the(app, "api")).waiting
        end.set()
        await auntil(lambda: len(started) == claimed)
        await asyncio.sleep(0.2)
        assert len(started) == claimed < 30
        await app.aset_rate("api", None)
        for job in jobs:
            await job.aresult(timeout="20s")


async def test_a_job_with_several_rules_gives_all_its_permits_back(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(limits=[Limit(10, key="a"), Limit(4, key="b")], rate=Rate(100, key="api"))
    async def both(n: int) -> None: ...

    @app.task(limits=[Limit(4, key="b"), Limit(9, key="c")])
    async def only_b(n: int) -> None: ...

    jobs = [*await both.aenqueue_many([{"n": n} for n in range(4)]), *await only_b.aenqueue_many([{"n": 0}])]
    permits = "select key, count(*) from stepwell.permit group by key order by key"
    for _ in range(3):
        conn.execute("select stepwell.admit_keys(array['a', 'b', 'c', 'api'])")
    assert conn.execute(permits).fetchall() == [("a", 4), ("api", 4), ("b", 4)]
    conn.execute("listen stepwell_blocked")
    await app.aset_limit("a", 1)
    conn.execute("select stepwell.admit_keys(array['a'])")
    assert conn.execute(permits).fetchall() == [("a", 1), ("api", 1), ("b", 1)]
    # The other keys have room for the jobs in their lines.
    told = {key for told in conn.notifies(timeout=0.1) for key in json.loads(told.payload)}
    assert {"b", "api"} <= told
    async with Worker(app):
        await jobs[-1].aresult(timeout="20s")
        await app.aset_limit("a", None)
        for job in jobs:
            await job.aresult(timeout="20s")


async def test_a_job_that_holds_its_permit_over_a_wait_is_not_stopped(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(limit=Limit(5, key="k", hold=True))
    async def work(ctx: Context, n: int) -> int:
        await ctx.sleep("1ms")
        return n

    async with Worker(app):
        await app.apause("default")
        fresh = await work.aenqueue(1)
        await auntil(lambda: _held(app, "k", 1))
    # A second one that has begun.
    begun = await work.aenqueue(2)
    conn.execute("select stepwell.admit_keys(array['k'])")
    conn.execute("update stepwell.job set epoch = 1 where id = %s", (begun.id,))
    await app.aset_limit("k", 0)
    conn.execute("select stepwell.admit_keys(array['k'])")
    states = dict(conn.execute("select id, state::text from stepwell.job").fetchall())
    assert states == {fresh.id: "blocked", begun.id: "ready"}


async def test_a_rate_is_set_and_removed(app: App) -> None:
    await app.aset_rate("api", Rate(100, per="10s", burst=7))
    found = await the(app, "api")
    assert (found.rate, found.burst, found.rate_is_set, found.most, found.most_is_set) == (10, 7, True, None, False)
    await app.aset_limit("api", 3)
    await app.aset_rate("api", Rate(100, per="10s", smooth=True))
    found = await the(app, "api")
    # The tokens of a smooth rate are further apart, so that a late claim can be made up for.
    assert (found.rate, found.burst, found.most) == (pytest.approx(100 / 10.075), 1, 3)
    await app.aset_rate("api", None)
    found = await the(app, "api")
    assert (found.rate, found.burst, found.rate_is_set, found.most) == (None, None, False, 3)
    await app.aset_limit("api", None)
    assert await app.alimits() == []


@pytest.mark.parametrize("key", ["\u202e", "x" * 10_000, "\u00e9", "e\u0301", "{tenant}", " ", "\U0001f600" * 300])
def test_the_limit_of_any_key_that_a_job_has_can_be_set(app: App, key: str) -> None:
    """Unprintable keys were refused, and a long one had to be written as it is cut."""

    @app.task(limit=Limit(1, key="{tenant}"), rate=Rate(1, key="{tenant}"))
    def work(tenant: str) -> None: ...

    work.enqueue(key)
    app.set_limit(key, 7)
    app.set_rate(key, Rate(50))
    [found] = app.limits()
    assert (found.most, found.most_is_set, found.rate, found.rate_is_set, found.waiting) == (7, True, 50, True, 1)
    assert [limit.key for limit in app.limits(key)] == [found.key]


async def test_a_rate_that_waits_says_when_it_admits_the_next(app: App) -> None:
    @app.task(rate=Rate(1, per="1h", key="api"))
    async def call(n: int) -> int:
        return n

    async with Worker(app):
        jobs = [await call.aenqueue(n) for n in range(2)]
        assert await jobs[0].aresult(timeout="20s") == 0

        async def waits() -> bool:
            found = await the(app, "api")
            return found.waiting == 1 and found.next_at is not None

        await auntil(waits)
        found = await the(app, "api")
        assert found.rate == pytest.approx(1 / 3600)
        await app.aset_rate("api", Rate(1000))
        assert await jobs[1].aresult(timeout="20s") == 1


def test_sync_code_has_the_same(dsn: str) -> None:
    with App(dsn) as app:
        app.set_limit("k", 4)
        app.set_rate("k", Rate(2))
        [found] = app.limits()
        assert (found.key, found.most, found.rate, found.burst) == ("k", 4, 2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("set_limit", "k", -1), "most is -1: it must be a whole number between 0 and 1000000"),
        (("set_limit", "k", 2_000_000), "most is 2000000"),
        (("set_limit", "k", True), "most is True"),
        (("set_limit", "", 1), "key is ''"),
        (("set_limit", 5, 1), "key is 5: give text"),
        (("set_rate", "a\nb", Rate(1)), "a key must not have control characters"),
        (("limits", "\ud800"), "half of a surrogate pair"),
        (("set_rate", "k", 5), r'rate is 5: give a Rate, such as Rate\(50, per="1s"\)'),
        (("set_rate", "k", Rate(5, key="other")), "the rate is for key 'k', but has key='other'"),
    ],
)
def test_what_cannot_be_set_is_refused_in_python(dsn: str, call: tuple[Any, ...], message: str) -> None:
    app = App(dsn)
    with pytest.raises(ConfigError, match=message):
        getattr(app, call[0])(*call[1:])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("set_limit(null, 1)", "the key of a limit or rate must have 1 to 200 characters"),
        ("set_limit('', 1)", "must have 1 to 200 characters"),
        ("set_limit(repeat('k', 201), 1)", "must have 1 to 200 characters"),
        ("set_limit('k', -1)", "the limit of k is -1: give 0 to 1000000, or null to remove the setting"),
        ("set_limit('k', 2000000)", "the limit of k is 2000000"),
        ("set_rate(null, 1, 1)", "must have 1 to 200 characters"),
        ("set_rate('k', 1, null)", "give both a count and a number of seconds, or nulls for both"),
        ("set_rate('k', null, 1)", "give both"),
        ("set_rate('k', null, null, 3)", "a burst needs a count"),
        ("set_rate('k', 0, 1)", "the count is 0: give 1 to 1000000"),
        ("set_rate('k', 2000000, 1)", "the count is 2000000"),
        ("set_rate('k', 1, 0)", "give more than 0, and at most 100 years"),
        ("set_rate('k', 1, -1)", "give more than 0"),
        ("set_rate('k', 1, 'NaN')", "give more than 0"),
        ("set_rate('k', 1, 'Infinity')", "at most 100 years"),
        ("set_rate('k', 1, 3e9, 1000)", "more than 100 years to fill up"),
        ("set_rate('k', 1, 1, 0)", "the burst is 0: give 1 to 1000000"),
    ],
)
def test_what_cannot_be_set_is_refused_in_sql(conn: psycopg.Connection[Any], call: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as refused:
        conn.execute(f"select stepwell.{call}")  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert refused.value.sqlstate == "SW002"
    assert conn.execute("select count(*) from stepwell.limits").fetchone() == (0,)


def test_removing_what_is_not_set_changes_nothing(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select stepwell.set_limit('k', null)")
    conn.execute("select stepwell.set_rate('k', null, null)")
    assert conn.execute("select count(*) from stepwell.limits").fetchone() == (0,)


def test_the_view_lists_keys_in_order(conn: psycopg.Connection[Any]) -> None:
    for key in ("b", "a", "c"):
        conn.execute("select stepwell.set_limit(%s, 1)", (key,))
    assert conn.execute("select key, most, held, waiting from stepwell.limits").fetchall() == [
        ("a", 1, 0, 0),
        ("b", 1, 0, 0),
        ("c", 1, 0, 0),
    ]
