"""Rates: never exceeded in any window, by the database's clock."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import pairwise
from math import ceil
from typing import Any, LiteralString

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, Limit, Rate, RateLimited, Worker
from stepwell.postgres import queries
from stepwell.postgres.queries.claims import Position
from stepwell.testing import Clock
from stepwell.values.rate import lateness

Connection = psycopg.Connection[Any]


def claimed(conn: Connection, task: str) -> list[float]:
    rows = conn.execute(
        "select extract(epoch from claimed_at)::float8 from stepwell.jobs where task = %s order by 1", [task]
    )
    return [row[0] for row in rows]


def check(times: list[float], interval: float, burst: int) -> None:
    """In any window there are at most the burst and the tokens that it brought."""
    for first, at in enumerate(times):
        for last in range(first, len(times)):
            most = burst + (times[last] - at) / interval + 1e-3
            assert last - first + 1 <= most, (first, last, times[last] - at)


@pytest.mark.slow
async def test_a_rate_is_never_exceeded_and_is_reached(app: App, conn: Connection) -> None:
    @app.task(rate=Rate(200, per="1s", burst=20, key="api"))
    async def call(n: int) -> None: ...

    took: list[float] = []
    async with Worker(app, concurrency=50):
        # The rate is reached if nothing else keeps the machine busy, so the best of three counts.
        while not took or (took[-1] >= 1.5 and len(took) < 3):
            for job in await call.aenqueue_many([{"n": n} for n in range(220)]):
                await job.aresult(timeout="20s")
            times = claimed(conn, "call")
            check(times, 1 / 200, 20)
            took.append(times[-1] - times[-220])
    # 200 jobs beyond the burst take a second. A bucket that is not full again has fewer tokens at the start.
    assert 0.95 < min(took) < 1.5


async def test_two_workers_share_a_rate(app: App, dsn: str, conn: Connection) -> None:
    async def call(n: int) -> None: ...

    rate = Rate(100, per="1s", burst=5, key="api")
    task = app.task(name="call", rate=rate)(call)
    async with App(dsn) as other:
        other.task(name="call", rate=rate)(call)
        async with Worker(app), Worker(other):
            jobs = await task.aenqueue_many([{"n": n} for n in range(60)])
            for job in jobs:
                await job.aresult(timeout="20s")
    check(claimed(conn, "call"), 1 / 100, 5)


def check_smooth(times: list[float], count: int) -> None:
    """No second has more than `count`, and no two are closer than a quarter of the spacing."""
    for first, at in enumerate(times):
        assert bisect_left(times, at + 1 - 1e-5) - first <= count
    assert all(later - sooner >= 0.25 / count - 1e-5 for sooner, later in pairwise(times))


@pytest.mark.parametrize("set_for", ["task", "key", "queue"])
async def test_a_smooth_rate_spaces_jobs_evenly(app: App, conn: Connection, set_for: str) -> None:
    rate = Rate(20, per="1s", smooth=True)

    @app.task(rates=[rate] if set_for == "task" else [Rate(1, per="1h")] if set_for == "key" else [])
    async def call(n: int) -> None: ...

    if set_for == "key":
        await app.aset_rate("call", rate)
    elif set_for == "queue":
        await app.aset_queue("default", rate=rate)
    jobs = await call.aenqueue_many([{"n": n} for n in range(30)])
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")
    check_smooth(claimed(conn, "call"), 20)


@pytest.mark.slow
async def test_a_smooth_rate_is_reached(app: App, conn: Connection) -> None:
    """Each claim came some milliseconds after its token, which were lost: in no second did more than 39 of 50 start."""

    @app.task(rate=Rate(50, per="1s", smooth=True))
    async def call(n: int) -> None: ...

    most = tries = 0
    async with Worker(app):
        # As above: the rate is reached if nothing else keeps the machine busy, so the best second of a few counts.
        while most < 0.95 * 50 and tries < 4:
            for job in await call.aenqueue_many([{"n": n} for n in range(150)]):
                await job.aresult(timeout="60s")
            times = claimed(conn, "call")
            check_smooth(times, 50)
            most = max(bisect_left(times, at + 1) - first for first, at in enumerate(times))
            tries += 1
    assert 0.95 * 50 <= most <= 50


async def test_a_smooth_rate_makes_up_for_a_part_of_a_late_claim_only(app: App, conn: Connection) -> None:
    """A claim that comes late is followed by the next one sooner, but by no more than the bucket holds."""

    @app.task(rate=Rate(4, per="40s", smooth=True, key="api"))
    async def call(n: int) -> None: ...

    def ready() -> int:
        conn.execute("select stepwell.admit_keys(array['api'])")
        return conn.execute("select from stepwell.jobs where state = 'ready'").rowcount

    async def claim() -> None:
        assert len(await app.database.afetch(claims)) == 1

    register = queries.fleet.register_worker("test", 1, "test", ["default"], "{}", 1, 86400)
    [worker_id] = await app.database.afetch(register)
    claims = queries.claims.claim(worker_id, ["default"], [Position()], ["call"], 10)
    await call.aenqueue_many([{"n": n} for n in range(9)])
    late = lateness(4, 40)
    spacing = (40 + late) / 4
    assert late == 0.1
    async with Clock(app) as clock:
        for _ in range(2):
            assert ready() == 1
            await clock.advance(1000)
            await claim()
            # However late it was, the next is not sooner than by `late`.
            await clock.advance(spacing - late - 0.01)
            assert ready() == 0
            await clock.advance(0.02)
        # This one is on time, so the next is not sooner.
        assert ready() == 1
        await claim()
        await clock.advance(spacing - 0.02)
        assert ready() == 0
        await clock.advance(0.02)
        assert ready() == 1


@pytest.mark.parametrize(("count", "per"), [(1, 1.0), (2, 0.1), (10, 1.0), (50, 1.0), (1000, 1.0), (3, 86400.0)])
def test_python_and_sql_space_a_smooth_rate_in_the_same_way(app: App, conn: Connection, count: int, per: float) -> None:
    rate = Rate(count, per=per, smooth=True)
    app.set_rate("api", rate)
    stored = conn.execute("select spacing, burst, late from stepwell.key_setting").fetchone()
    assert stored == pytest.approx(rate.bucket)
    app.set_queue("mail", rate=rate)
    assert conn.execute("select spacing, burst, late from stepwell.queue_setting").fetchone() == stored
    app.set_queue("mail", limit=5)
    assert conn.execute("select spacing, burst, late from stepwell.queue_setting").fetchone() == stored
    spacing, burst, slack = rate.bucket
    # The most that a window of `per`, without its end, can hold.
    assert ceil((burst + slack) + per / spacing - 1e-9) - 1 <= count


async def test_a_backlog_that_waited_for_a_worker_does_not_burst(app: App, conn: Connection) -> None:
    """Admitted jobs reserve tokens, which only a claim uses: however long no worker is there."""

    @app.task(rate=Rate(50, per="1s", burst=5, key="api"), queue="later")
    async def call(n: int) -> None: ...

    @app.task
    async def other() -> None: ...

    jobs = await call.aenqueue_many([{"n": n} for n in range(30)])
    async with Worker(app, queues=["default"]):
        await auntil(lambda: conn.execute("select from stepwell.jobs where state = 'ready'").rowcount == 5)
        await asyncio.sleep(0.5)
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")
    check(claimed(conn, "call"), 1 / 50, 5)


async def test_a_due_rate_whose_tokens_are_all_reserved_is_looked_at_again(app: App, conn: Connection) -> None:
    """A claim that commits while `promote` runs relies on the due time, which `promote` then clears."""

    @app.task(rate=Rate(50, per="1s", burst=2, key="api"))
    async def call(n: int) -> None: ...

    await call.aenqueue_many([{"n": n} for n in range(5)])
    assert conn.execute("select admitted from stepwell.admit_keys(array['api'])").fetchone() == (2,)
    conn.execute("insert into stepwell.bucket (key, used, used_at, next_at) values ('api', 0, now(), now())")
    conn.execute("listen stepwell_blocked")
    conn.execute("select stepwell.promote()")
    told = [told.payload for told in conn.notifies(timeout=0)]
    assert told == ['["api"]']
    assert conn.execute("select next_at from stepwell.bucket").fetchone() == (None,)


async def test_a_job_that_comes_while_the_last_token_is_claimed_is_not_forgotten(app: App, conn: Connection) -> None:
    """Its admission finds the token reserved, and the claim, which began before, found nobody in line."""

    @app.task(rate=Rate(50, per="1s", burst=1, key="api"))
    async def call(n: int) -> None: ...

    register = queries.fleet.register_worker("test", 1, "test", ["default"], "{}", 1, 86400)
    [worker_id] = await app.database.afetch(register)
    claim = queries.claims.claim(worker_id, ["default"], [Position()], ["call"], 10)
    await call.aenqueue(1)
    assert conn.execute("select admitted from stepwell.admit_keys(array['api'])").fetchone() == (1,)
    with psycopg.connect(app.dsn) as claimer:
        assert len(claimer.execute(claim.text, claim.params).fetchall()) == 1
        await call.aenqueue(2)
        assert conn.execute("select admitted, next_in from stepwell.admit_keys(array['api'])").fetchone() == (0, None)
        conn.execute("listen stepwell_blocked")
    assert [told.payload for told in conn.notifies(timeout=10, stop_after=1)] == ['["api"]']


async def test_an_admission_leaves_a_locked_bucket_to_a_worker(app: App, conn: Connection) -> None:
    """It raised, and with it the end of the job that freed the key."""

    @app.task(limit=Limit(2, key="a"), rate=Rate(1, per="1h", key="a"))
    async def call(n: int) -> None: ...

    await call.aenqueue_many([{"n": n} for n in range(3)])
    conn.execute("insert into stepwell.bucket (key, used, used_at) values ('a', 1, now())")
    conn.execute("listen stepwell_blocked")
    with psycopg.connect(app.dsn) as holder:
        holder.execute("update stepwell.bucket set used = 1 where key = 'a'")
        assert conn.execute("select admitted from stepwell.admit_keys(array['a'])").fetchone() == (0,)
    assert '["a"]' in [told.payload for told in conn.notifies(timeout=10, stop_after=1)]


async def test_rate_limited_closes_the_bucket_and_uses_no_attempt(app: App, conn: Connection) -> None:
    told = list[float]()
    attempts = list[int]()

    @app.task(rate=Rate(1000, key="api"))
    async def call(n: int) -> None:
        told.append(asyncio.get_running_loop().time())
        if len(told) == 1:
            raise RateLimited(retry_after="700ms")

    async with Worker(app):
        first = await call.aenqueue(0)
        await auntil(lambda: conn.execute("select from stepwell.bucket where closed_until is not null").rowcount)
        others = await call.aenqueue_many([{"n": n} for n in range(1, 5)])
        for job in (first, *others):
            await job.aresult(timeout="20s")
        info = await first.ainfo()
        assert info is not None
        attempts.append(info.attempt)
    assert told[1] - told[0] > 0.65
    assert attempts == [1]


@pytest.mark.parametrize("rate", [Rate(1000), None])
async def test_a_rate_that_is_set_opens_again(app: App, conn: Connection, rate: Rate | None) -> None:
    """After `RateLimited("1d")` by mistake, nothing but a day made the jobs of the key run."""

    @app.task(rate=Rate(1000, key="api"))
    async def call(n: int) -> int:
        if n == 0:
            raise RateLimited("1d")
        return n

    async with Worker(app):
        await call.aenqueue(0)
        await auntil(lambda: conn.execute("select from stepwell.bucket where closed_until is not null").rowcount)
        waits = await call.aenqueue(1)
        await app.aset_limit("api", 5)
        assert conn.execute("select from stepwell.bucket where closed_until is not null").rowcount == 1
        await app.aset_rate("api", rate)
        assert await waits.aresult(timeout="20s") == 1


@pytest.mark.parametrize("setting", ["1000, 1", "null, null"])
async def test_a_rate_that_is_set_in_an_open_transaction_delays_no_claim(
    app: App, conn: Connection, setting: LiteralString
) -> None:
    """The transaction held the bucket of a closed rate, and a claim of its jobs waited, with all other jobs."""

    @app.task(rate=Rate(10, key="api"))
    async def call() -> None: ...

    @app.task
    async def plain() -> None: ...

    register = queries.fleet.register_worker("test", 1, "test", ["default"], "{}", 1, 86400)
    [worker_id] = await app.database.afetch(register)
    claim = queries.claims.claim(worker_id, ["default"], [Position()], ["call", "plain"], 10)
    await call.aenqueue()
    await plain.aenqueue()
    assert conn.execute("select admitted from stepwell.admit_keys(array['api'])").fetchone() == (1,)
    conn.execute(
        "insert into stepwell.bucket (key, used, used_at, closed_until)"
        " values ('api', 1, now(), now() + interval '1 day')"
    )
    closed = "select from stepwell.bucket where closed_until is not null"
    conn.execute("set lock_timeout = '20s'")
    with psycopg.connect(app.dsn) as operator:
        operator.execute(f"select stepwell.set_rate('api', {setting})")
        assert len(conn.execute(claim.text, claim.params).fetchall()) == 2
        assert conn.execute(closed).rowcount == 1
    assert conn.execute(closed).rowcount == 0


def test_a_bad_time_of_rate_limited_is_reported_as_such() -> None:
    with pytest.raises(ConfigError, match=r"^RateLimited\(retry_after\) is 'soon'"):
        RateLimited("soon")
    assert (RateLimited("30s").delay, str(RateLimited("30s"))) == (30, "too many requests: again in 30s")


async def test_a_rate_is_changed_at_run_time(app: App, conn: Connection) -> None:
    ran = list[int]()

    @app.task(rate=Rate(1, per="1h", key="api"))
    async def call(n: int) -> None:
        ran.append(n)

    jobs = await call.aenqueue_many([{"n": n} for n in range(20)])
    async with Worker(app):
        await auntil(lambda: len(ran) == 1)
        conn.execute("select stepwell.set_rate('api', 1000, 1)")
        # The token that the first job used comes back at the new rate.
        for job in jobs:
            await job.aresult(timeout="20s")


@pytest.mark.parametrize("of_queue", [False, True])
async def test_a_rate_goes_on_when_the_clock_of_the_database_is_set_back(
    app: App, conn: Connection, of_queue: bool
) -> None:
    """The bucket did not fill up until the clock had passed the time of its last token."""
    rate = Rate(1, per="100ms", key=None if of_queue else "api")

    @app.task(rates=[] if of_queue else [rate])
    async def call(n: int) -> int:
        return n

    if of_queue:
        await app.aset_queue("default", rate=rate)
    async with Worker(app, poll=1):
        async with Clock(app) as clock:
            await clock.advance("1h")
            first, *others = await call.aenqueue_many([{"n": n} for n in range(4)])
            assert await first.aresult(timeout="20s") == 0
            await auntil(lambda: conn.execute("select from stepwell.bucket where next_at is not null").rowcount)
        for n, job in enumerate(others, 1):
            assert await job.aresult(timeout="20s") == n


async def test_a_claim_after_the_clock_was_set_back_brings_the_bucket_to_the_new_time(
    app: App, conn: Connection
) -> None:
    @app.task(rate=Rate(2, per="1h", key="api"))
    async def call() -> None: ...

    conn.execute("insert into stepwell.bucket (key, used, used_at) values ('api', 1, now() + interval '1 hour')")
    async with Worker(app):
        await (await call.aenqueue()).aresult(timeout="20s")
    assert conn.execute("select used, used_at <= now() from stepwell.bucket").fetchone() == (2, True)


async def test_a_rate_of_a_queue_that_is_lowered_to_almost_nothing_leaves_other_queues_alone(
    app: App, conn: Connection
) -> None:
    """The time of the next token was out of the range of times, and every claim failed."""

    @app.task
    async def work() -> int:
        return 1

    await app.aset_queue("mail", rate=Rate(5000, per="1h"))
    conn.execute("insert into stepwell.bucket (key, used, used_at) values (E'\\x02mail', 4500, now())")
    await app.aset_queue("mail", rate=Rate(1, per="36500d"))
    async with Worker(app, queues=["mail", "default"]):
        mail = await work.using(queue="mail").aenqueue()
        assert await (await work.aenqueue()).aresult(timeout="20s") == 1
        assert (await mail.awhy()).cause == "rate"
    # The bucket that was set is empty, not more than that.
    async with Clock(app) as clock, Worker(app, queues=["mail", "default"]):
        await clock.advance("36501d")
        assert await mail.aresult(timeout="20s") == 1


async def test_a_rate_of_a_key_that_is_lowered_to_almost_nothing_leaves_other_keys_alone(
    app: App, conn: Connection
) -> None:
    @app.task(rate=Rate(1, per="7d", burst=5000, key="huge"))
    async def call() -> int:
        return 1

    @app.task(limit=Limit(1, key="other"))
    async def work() -> int:
        return 2

    conn.execute("insert into stepwell.bucket (key, used, used_at) values ('huge', 3500, now())")
    await app.aset_rate("huge", Rate(1, per="36500d", burst=1))
    async with Worker(app):
        waits = await call.aenqueue()
        assert await (await work.aenqueue()).aresult(timeout="20s") == 2
        await auntil(lambda: conn.execute("select from stepwell.bucket where next_at is not null").rowcount)
        assert (await waits.awhy()).cause == "rate"
    async with Clock(app) as clock, Worker(app):
        await clock.advance("36501d")
        assert await waits.aresult(timeout="20s") == 1


async def test_a_key_that_cannot_be_admitted_does_not_hold_up_the_others(app: App, conn: Connection) -> None:
    @app.task(limit=Limit(1, key="{key}"))
    async def work(key: str) -> str:
        return key

    conn.execute("alter table stepwell.permit add constraint refused check (key <> 'key-3')")
    jobs = await work.aenqueue_many([{"key": f"key-{n}"} for n in range(8)])
    async with Worker(app):
        for n, job in enumerate(jobs):
            if n != 3:
                assert await job.aresult(timeout="20s") == f"key-{n}"
        conn.execute("alter table stepwell.permit drop constraint refused")
        assert await jobs[3].aresult(timeout="20s") == "key-3"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rate(0),
        lambda: Rate(5, per=0),
        lambda: Rate(5, burst=0),
        lambda: Rate(5, burst=2, smooth=True),
        lambda: Rate(5, smooth="no"),  # type: ignore[arg-type]
        lambda: Rate(1_000_000, per="1us"),
        lambda: Rate(1, per=1e-7),
        lambda: Rate(1, per="520w", burst=1000),
    ],
)
def test_bad_rates_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_the_fastest_and_the_slowest_rate_are_stored(app: App, conn: Connection) -> None:
    for n, rate in enumerate((Rate(999, per="1us"), Rate(1, per="5200w"), Rate(1_000_000, per="1ms"))):

        @app.task(name=f"call{n}", rate=rate)
        def call() -> None: ...

        assert call.enqueue().inserted
        app.set_rate(f"call{n}", rate)


@pytest.mark.parametrize("of_queue", [False, True])
async def test_workers_do_not_look_for_a_token_that_nobody_waits_for(
    app: App, conn: Connection, of_queue: bool
) -> None:
    """The time at which a bucket has a token again stayed due after the last job in line was cancelled, and the leader
    looked for it five hundred times a second."""
    rate = Rate(1, per="10s")

    @app.task(rates=[] if of_queue else [rate])
    async def call() -> None: ...

    if of_queue:
        await app.aset_queue("default", rate=rate)
    async with Worker(app):
        first, waits = await call.aenqueue(), await call.aenqueue()
        await first.aresult(timeout="20s")
        next_at = "select count(*) from stepwell.bucket where next_at is not null"
        await auntil(lambda: conn.execute(next_at).fetchone() == (1,))
    await waits.acancel()
    conn.execute("insert into stepwell.clock (at) values (clock_timestamp() + interval '1 hour')")
    for _ in range(2):
        assert conn.execute("select next_due from stepwell.promote()").fetchone() == (None,)
