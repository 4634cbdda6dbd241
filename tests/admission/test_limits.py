"""Limits by key: never exceeded, never leaked, in order, changed at run time."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
import pytest
from waiting import auntil

from stepwell import App, BadArgs, ConfigError, Context, Fail, JobFailed, Limit, Rate, Retry, Snooze, Unique, Worker

Connection = psycopg.Connection[Any]


class Tally:
    """Counts the runs of each key, and how many there were at once."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[Any] = []

    async def run(self, *keys: str, note: Any = None, seconds: float = 0.01) -> None:
        self.order.append(note)
        for key in keys:
            self.now[key] += 1
            self.most[key] = max(self.most[key], self.now[key])
        await asyncio.sleep(seconds)
        self.now.subtract(keys)


def permits(conn: Connection) -> int:
    return conn.execute("select from stepwell.permit").rowcount


def states(conn: Connection) -> dict[str, int]:
    return dict(conn.execute("select state::text, count(*) from stepwell.jobs group by 1").fetchall())


async def test_a_limit_holds_for_each_key_and_leaves_no_permit(app: App, conn: Connection) -> None:
    tally = Tally()

    @app.task(limit=Limit(2, key="tenant-{tenant}"))
    async def report(tenant: str, n: int) -> None:
        await tally.run(tenant)

    jobs = [await report.aenqueue(tenant, n) for n in range(15) for tenant in ("a", "b", "c")]
    assert states(conn) == {"blocked": 45}
    async with Worker(app, concurrency=30):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert tally.most == {"a": 2, "b": 2, "c": 2}
    assert permits(conn) == 0


async def test_a_limit_of_one_runs_first_in_first_out_and_urgent_jobs_first(app: App) -> None:
    tally = Tally()

    @app.task(limit=Limit(1))
    async def ship(n: int) -> None:
        await tally.run("ship", note=n, seconds=0)

    jobs = await ship.aenqueue_many([{"n": n} for n in range(50)])
    urgent = await ship.using(priority=5).aenqueue(100)
    async with Worker(app, concurrency=20):
        for job in (*jobs, urgent):
            await job.aresult(timeout="20s")
    assert tally.order == [100, *range(50)]


async def test_several_limits_of_a_job_hold_together_and_tasks_share_a_key(app: App, conn: Connection) -> None:
    tally = Tally()

    @app.task(limits=[Limit(3, key="all"), Limit(1, key="user-{user}")])
    async def crawl(user: str) -> None:
        await tally.run("all", user)

    @app.task(limit=Limit(3, key="all"))
    async def scan(user: str) -> None:
        await tally.run("all")

    jobs = [*(await crawl.aenqueue_many([{"user": f"u{n % 4}"} for n in range(24)]))]
    jobs += await scan.aenqueue_many([{"user": "x"}] * 12)
    async with Worker(app, concurrency=30):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert tally.most["all"] == 3
    assert [tally.most[f"u{n}"] for n in range(4)] == [1] * 4
    assert permits(conn) == 0


async def test_a_limit_of_the_app_holds_for_all_its_tasks_together(dsn: str, conn: Connection) -> None:
    app, tally = App(dsn, limits=[Limit(3, key="shop")]), Tally()

    @app.task(limit=Limit(2, key="{user}"))
    async def mail(user: str) -> None:
        await tally.run("all", user)

    @app.task
    async def plain() -> None:
        await tally.run("all")

    async with app:
        jobs = [await task for _ in range(5) for task in (mail.aenqueue("a"), mail.aenqueue("b"), plain.aenqueue())]
        async with Worker(app):
            for job in jobs:
                await job.aresult(timeout="20s")
    assert (tally.most["all"], tally.most["a"] <= 2, permits(conn)) == (3, True, 0)
    for limits, match in (
        ([Limit(3)], "without a key"),
        ([Limit(3, key="{user}")], "names 'user'"),
        (Limit(3, key="shop"), "limits is one Limit"),
        ([3], "give a Limit"),
        (None, "limits is None: give a list of Limits"),
        ([Limit(3, key="shop", hold=True)], "would keep that one from running"),
    ):
        with pytest.raises(ConfigError, match=match):
            App(dsn, limits=limits)  # type: ignore[arg-type]


async def test_two_workers_share_a_limit(app: App, dsn: str) -> None:
    tally = Tally()

    async def work(n: int) -> None:
        await tally.run("k")

    first = app.task(name="work", limit=Limit(3, key="k"))(work)
    async with App(dsn) as other:
        other.task(name="work", limit=Limit(3, key="k"))(work)
        jobs = await first.aenqueue_many([{"n": n} for n in range(60)])
        async with Worker(app, concurrency=20), Worker(other, concurrency=20):
            for job in jobs:
                await job.aresult(timeout="20s")
    assert tally.most["k"] == 3


async def test_jobs_of_one_key_with_different_numbers_are_each_admitted_by_their_own(
    app: App, conn: Connection
) -> None:
    """As while a new number is deployed. The number of the first job was that of the whole line."""

    @app.task(limit=Limit(5, key="{key}"))
    async def wide(key: str) -> None: ...

    @app.task(limit=Limit(2, key="{key}"))
    async def narrow(key: str) -> None: ...

    @app.task(limits=[Limit(5, key="{key}"), Limit(9, key="other")])
    async def both(key: str) -> None: ...

    lines = {
        "a": [wide, narrow, narrow, wide],
        "b": [wide, wide, narrow, wide],
        "c": [narrow, wide, wide],
        "d": [wide, wide, wide, wide, wide, wide],
        "e": [wide, both, narrow],
    }
    for key, tasks in lines.items():
        for task in tasks:
            await task.aenqueue(key)
    conn.execute("select stepwell.admit_keys(array['a', 'b', 'c', 'd', 'e'])")
    rows = conn.execute(
        "select args ->> 'key', array_agg(state::text order by id) from stepwell.job group by 1 order by 1"
    )
    found = {key: [state == "ready" for state in states] for key, states in rows}
    assert found == {
        "a": [True, True, False, False],
        "b": [True, True, False, False],
        "c": [True, True, False],
        "d": [True, True, True, True, True, False],
        "e": [True, True, False],
    }
    conn.execute("select stepwell.set_limit('a', 3)")
    conn.execute("select stepwell.admit_keys(array['a'])")
    assert conn.execute("select count(*) from stepwell.permit where key = 'a'").fetchone() == (3,)
    async with Worker(app):
        await auntil(lambda: conn.execute("select from stepwell.job").rowcount == 0)
    assert permits(conn) == 0


async def test_a_job_that_waits_gives_its_place_to_the_next_and_queues_again(app: App, conn: Connection) -> None:
    order: list[str] = []

    @app.task(limit=Limit(1, key="one"), retry=Retry(max_attempts=3, initial="50ms"))
    async def work(ctx: Context, how: str) -> None:
        order.append(f"{how}{ctx.attempt}")
        if how == "retry" and ctx.attempt == 1:
            raise ValueError("again")
        if how == "snooze" and order.count("snooze1") == 1:
            raise Snooze("50ms")
        if how == "sleep":
            await ctx.sleep("1.2s")

    jobs = [await work.aenqueue(how) for how in ("retry", "snooze", "sleep", "plain")]
    async with Worker(app, concurrency=10):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert order[:4] == ["retry1", "snooze1", "sleep1", "plain1"]
    assert sorted(order[4:]) == ["retry2", "sleep1", "snooze1"]
    assert permits(conn) == 0


async def test_hold_keeps_the_place_over_waits_and_retries(app: App, conn: Connection) -> None:
    order: list[str] = []

    @app.task(limit=Limit(1, key="one", hold=True), retry=Retry(max_attempts=3, initial="50ms"))
    async def work(ctx: Context, n: int) -> None:
        order.append(f"{n}.{ctx.attempt}")
        if n == 0 and ctx.attempt == 1:
            raise ValueError("again")
        if n == 1:
            await ctx.sleep("1.2s")

    jobs = await work.aenqueue_many([{"n": n} for n in range(3)])
    async with Worker(app, concurrency=10):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert order == ["0.1", "0.2", "1.1", "1.1", "2.1"]
    assert permits(conn) == 0


async def test_hold_keeps_the_place_over_a_snooze_an_event_and_a_dead_worker(app: App, conn: Connection) -> None:
    order: list[str] = []

    @app.task(limit=Limit(1, key="one", hold=True), retry=Retry(max_attempts=3, initial="50ms"))
    async def work(ctx: Context, n: int) -> None:
        order.append(f"{n}.{ctx.attempt}")
        if order == ["0.1"]:
            raise Snooze("50ms")
        if n == 1:
            await ctx.wait_for("go")
        if n == 2 and ctx.attempt == 1:
            await asyncio.Event().wait()

    jobs = await work.aenqueue_many([{"n": n} for n in range(4)])
    async with Worker(app, concurrency=10):
        await auntil(lambda: conn.execute("select from stepwell.jobs where state = 'waiting'").rowcount == 1)
        await app.aemit("go")
        await auntil(lambda: order[-1:] == ["2.1"])
        # The worker is dead to the others: its jobs are rescued.
        conn.execute("update stepwell.worker set lease_until = now() - interval '1 hour'")
        await jobs[2].aresult(timeout="30s")
        await jobs[3].aresult(timeout="30s")
    assert order == ["0.1", "0.1", "1.1", "1.1", "2.1", "2.2", "3.1"]
    assert permits(conn) == 0


async def test_a_place_comes_back_from_jobs_that_fail_are_cancelled_or_forgotten(app: App, conn: Connection) -> None:
    @app.task(limit=Limit(1, key="one"))
    async def work(how: str) -> str:
        if how == "fail":
            raise Fail("no")
        return how

    fails, cancelled, last = [await work.aenqueue(how) for how in ("fail", "cancel", "last")]
    assert await cancelled.acancel()
    # A permit whose job is gone would be a leak: upkeep finds it.
    conn.execute(
        "insert into stepwell.permit (key, job_id, rate, hold) values ('one', gen_random_uuid(), false, false)"
    )
    assert conn.execute("select stepwell.return_stray_permits()").fetchone() == (1,)
    async with Worker(app):
        with pytest.raises(JobFailed):
            await fails.aresult(timeout="20s")
        assert await last.aresult(timeout="20s") == "last"
    assert permits(conn) == 0


async def test_an_admitted_job_that_is_cancelled_before_it_runs_admits_the_next(app: App, conn: Connection) -> None:
    ran = list[int]()

    @app.task(limit=Limit(1, key="one"))
    async def work(n: int) -> None:
        ran.append(n)

    first, second = await work.aenqueue_many([{"n": 0}, {"n": 1}])
    await app.apause("default")
    async with Worker(app):
        await auntil(lambda: states(conn) == {"ready": 1, "blocked": 1})
        assert await first.acancel()
        await auntil(lambda: states(conn).get("ready") == 1 and "blocked" not in states(conn))
        await app.aresume("default")
        await second.aresult(timeout="20s")
    assert ran == [1]


async def test_a_limit_is_changed_at_run_time(app: App, conn: Connection) -> None:
    tally, go = Tally(), asyncio.Event()

    @app.task(limit=Limit(1, key="k"))
    async def work(n: int) -> None:
        tally.now["k"] += 1
        tally.most["k"] = max(tally.most["k"], tally.now["k"])
        await go.wait()
        tally.now["k"] -= 1

    jobs = await work.aenqueue_many([{"n": n} for n in range(10)])
    async with Worker(app, concurrency=10):
        await auntil(lambda: tally.now["k"] == 1)
        conn.execute("select stepwell.set_limit('k', 4)")
        await auntil(lambda: tally.now["k"] == 4)
        conn.execute("select stepwell.set_limit('k', 0)")
        go.set()
        await auntil(lambda: tally.now["k"] == 0)
        assert states(conn)["blocked"] == 6
        conn.execute("select stepwell.set_limit('k', null)")
        for job in jobs:
            await job.aresult(timeout="20s")
    assert tally.most["k"] == 4


async def test_delayed_jobs_queue_when_they_are_due(app: App, conn: Connection) -> None:
    tally = Tally()

    @app.task(limit=Limit(1, key="k"))
    async def work(n: int) -> None:
        await tally.run("k")

    jobs = await work.using(delay="200ms").aenqueue_many([{"n": n} for n in range(5)])
    assert states(conn) == {"scheduled": 5}
    async with Worker(app, concurrency=10):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert tally.most["k"] == 1


async def test_an_open_transaction_of_a_producer_holds_up_no_worker(app: App, dsn: str) -> None:
    @app.task(limit=Limit(1, key="k"))
    async def work(n: int) -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as mine, Worker(app):
        inside = await work.using(connection=mine).aenqueue(0)
        for n in range(5):
            await (await work.aenqueue(n)).aresult(timeout="60s")
        await mine.commit()
        await inside.aresult(timeout="60s")


@pytest.mark.parametrize("act", ["edit_args", "move_jobs", "run_now", "retry", "replace"])
async def test_a_job_that_was_locked_when_its_turn_came_runs_when_it_is_unlocked(
    app: App, dsn: str, conn: psycopg.Connection[Any], act: str
) -> None:
    """The end of the job before it passed over it, and the transaction that had locked it told nobody: the job waited
    for up to a minute for the next look at all lines."""
    go = asyncio.Event()

    @app.task(limit=Limit(1, key="k"), unique=Unique("{n}", on_conflict="replace"))
    async def work(n: int, text: str) -> str:
        await go.wait()
        return text

    calls: dict[str, LiteralString] = {
        "edit_args": """stepwell.edit_args(array[%(id)s::uuid], array['{"n": 1, "text": "new"}'])""",
        "move_jobs": "stepwell.move_jobs(array[%(id)s::uuid], _priority => 3)",
        "run_now": "stepwell.run_now(array[%(id)s::uuid])",
        "retry": "stepwell.retry(array[%(id)s::uuid])",
    }
    async with Worker(app), await psycopg.AsyncConnection.connect(dsn) as other:
        first = await work.aenqueue(0, "first")
        await auntil(lambda: conn.execute("select from stepwell.jobs where state = 'running'").rowcount == 1)
        second = await work.aenqueue(1, "old")
        if act == "replace":
            await work.using(connection=other).aenqueue(1, "new")
        else:
            await other.execute(f"select {calls[act]}", {"id": second.id})
        go.set()
        assert await first.aresult(timeout="20s") == "first"
        await auntil(lambda: conn.execute("select from stepwell.permit").rowcount == 0)
        await other.commit()
        assert await second.aresult(timeout="20s") == ("new" if act in ("edit_args", "replace") else "old")


@pytest.mark.slow
async def test_a_job_that_was_locked_when_its_turn_came_runs_after_a_rollback(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    go = asyncio.Event()

    @app.task(limit=Limit(1, key="k"))
    async def work(n: int) -> int:
        await go.wait()
        return n

    async with Worker(app):
        first = await work.aenqueue(0)
        await auntil(lambda: conn.execute("select from stepwell.jobs where state = 'running'").rowcount == 1)
        async with await psycopg.AsyncConnection.connect(dsn) as producer:
            second = await work.aenqueue(1)
            await second.acancel(connection=producer)
            go.set()
            assert await first.aresult(timeout="20s") == 0
            await auntil(lambda: conn.execute("select from stepwell.permit").rowcount == 0)
            conn.execute("select pg_terminate_backend(%s)", (producer.info.backend_pid,))
            with suppress(psycopg.Error):
                await producer.rollback()
        assert await second.aresult(timeout="30s") == 1


async def test_children_and_retried_jobs_are_limited_too(app: App, conn: Connection) -> None:
    tally = Tally()
    fails = True

    @app.task(limit=Limit(1, key="k"), retry=Retry(max_attempts=1))
    async def part(n: int) -> None:
        await tally.run("k")
        if fails:
            raise ValueError("not yet")

    @app.task(retry=Retry(max_attempts=1))
    async def whole(ctx: Context) -> None:
        await ctx.gather(*[ctx.spawn(part, n) for n in range(5)], return_exceptions=True)

    async with Worker(app, concurrency=10):
        await (await whole.aenqueue()).aresult(timeout="20s")
        fails = False
        ids = [row[0] for row in conn.execute("select id from stepwell.jobs where task = 'part'")]
        assert conn.execute("select cardinality(stepwell.retry(%s))", [ids]).fetchone() == (5,)
        for job_id in ids:
            await app.job(job_id).aresult(timeout="20s")
    assert tally.most["k"] == 1
    assert permits(conn) == 0


async def test_templates_that_come_to_one_key_have_the_lower_limit_and_rate(app: App, conn: Connection) -> None:
    tally = Tally()

    @app.task(
        limits=[Limit(9, key="all"), Limit(5, key="{src}"), Limit(1, key="{dst}")],
        rates=[Rate(1000, burst=500, key="r-{src}"), Rate(100, burst=900, key="r-{dst}")],
    )
    async def transfer(src: str, dst: str) -> None:
        await tally.run(src)

    jobs = await transfer.aenqueue_many([{"src": "a", "dst": "a"}] * 10)
    row = conn.execute("select admission -> 'rates' from stepwell.job limit 1").fetchone()
    assert row == ([{"key": "r-a", "interval": 0.01, "burst": 500, "late": 0.0}],)
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert tally.most == {"a": 1}


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Limit(0), "between 1 and"),
        (lambda: Limit(True), "between 1 and"),
        (lambda: Limit(2.5), "between 1 and"),  # type: ignore[arg-type]
        (lambda: Limit(1, hold="no"), "must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_bad_limits_are_refused(make: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()


def test_templates_are_checked_where_the_task_is_defined(app: App) -> None:
    def work(user: str) -> None: ...

    for limit, match in (
        (Limit(1, key="{usr}"), "names 'usr': the arguments are user"),
        (Limit(1, key="{"), "no template"),
        (Limit(1, key=""), "give text"),
        (Limit(1, key="{user:{width}}"), "'{width}' is no format"),
        (Limit(1, key="{user:zz}"), "'zz' is no format"),
        (Limit(1, key="{user:>99999999999}"), "'>99999999999' is no format"),
        (Limit(1, key="{user!s:05d}"), "'05d' is no format"),
        (Limit(1, key="{user!x}"), "there are !s, !r and !a"),
        (Limit(1, key="{user.}"), "'user.' is no value"),
        (Limit(1, key="{user.a..b}"), "is no value"),
        (Limit(1, key="{user[]}"), "is no template|is no value"),
        (Limit(1, key="{user[0]x}"), "is no template|is no value"),
        (Limit(1, key="\x02q"), "control characters"),
        (Limit(1, key="\x02{user}"), "control characters"),
        (Limit(1, key="a\0"), "NUL"),
        (Limit(1, key="\ud800"), "surrogate"),
    ):
        with pytest.raises(ConfigError, match=match):
            app.task(limit=limit)(work)
    with pytest.raises(ConfigError, match="hold=True"):
        app.task(limits=[Limit(1, key="a", hold=True), Limit(1, key="b")])(work)
    with pytest.raises(ConfigError, match=r"two limits with the key '\{user\}'"):
        app.task(limits=[Limit(5, key="{user}"), Limit(1, key="{user}")])(work)
    # "5 a second and 100 an hour" needs two buckets, so two keys.
    with pytest.raises(ConfigError, match="two rates with the key 'work': a key has one rate"):
        app.task(rates=[Rate(5), Rate(100, per="1h")])(work)
    with pytest.raises(ConfigError, match="two rates with the key 'work'"):
        app.task(rates=[Rate(5), Rate(100, per="1h", key="work")])(work)


def test_templates_may_have_paths_and_formats(app: App) -> None:
    def work(user: Any) -> None: ...

    for n, key in enumerate(
        (
            "{user}", "{user!r}", "{user!s:>5}", "{user.größe.b}", "{user[a.b].c[0]}", "{user:05d}", "{user:,.2f}",
            "{user:%Y-%m-%d}", "{user:x}", "{{{user:<8}}}", "queue",
        )
    ):  # fmt: skip
        app.task(name=f"work{n}", limit=Limit(1, key=key))(work)
    app.task(name="unique", unique="\x02{user}")(work)


async def test_a_line_of_jobs_with_one_limit_and_with_several_is_admitted_as_far_as_there_is_room(
    app: App, conn: Connection
) -> None:
    @app.task(limit=Limit(30, key="k"))
    async def one(n: int) -> None: ...

    @app.task(limits=[Limit(30, key="k"), Limit(5, key="other")])
    async def two(n: int) -> None: ...

    await app.aenqueue_many([(two if n % 7 == 3 else one).call(n) for n in range(40)])
    # The lock of the other key cannot be taken after that of the first: such jobs pass by the line of the other key.
    for _ in range(3):
        conn.execute("select stepwell.admit_keys(stepwell.lines())")
    assert states(conn) == {"ready": 30, "blocked": 10}
    assert permits(conn) == 30 + min(
        5, conn.execute("select from stepwell.jobs where task = 'two' and state = 'ready'").rowcount
    )


@pytest.mark.parametrize(
    "admission",
    [
        "5", "[]", '"x"', '{"limits":5}', '{"limits":[5]}', '{"limits":[{"key":"k"}]}', '{"limits":[{"most":1}]}',
        '{"limits":[{"key":"","most":1}]}', '{"limits":[{"key":"k","most":0}]}', '{"limits":[{"key":"k","most":"x"}]}',
        '{"limits":[{"key":"k","most":99999999999}]}', '{"limits":[{"key":"k","most":1,"hold":"maybe"}]}',
        '{"rates":[{"key":"k","interval":0,"burst":1}]}', '{"rates":[{"key":"k","interval":1}]}',
        '{"rates":[{"key":"k","interval":1,"burst":1,"late":1.5}]}',
        '{"rates":[{"key":"k","interval":1,"burst":1,"late":"NaN"}]}',
        '{"rates":[{"key":"k","interval":1,"burst":1,"late":"x"}]}',
        '{"rates":[{"key":"k","interval":"NaN","burst":1}]}', '{"fair":{}}', '{"fair":{"key":"k","weight":0}}',
        '{"unique":{}}', '{"unique":{"key":"k","conflict":"explode"}}',
        '{"\\u0075nique":{"key":"k","until_start":"maybe"}}', '{"\\u0075nique":{"key":"k","period":-1}}',
        '{"\\u0075nique":{"key":"k","max_wait":"soon"}}', '{"limits":[' + ",".join(['{"key":"k","most":1}'] * 9) + "]}",
        '{"unique":{"key":"k"},"limit\\u0073":[{"key":"k","most":"x"},{"key":"m","most":1}]}',
    ],
)  # fmt: skip
def test_sql_refuses_an_admission_that_could_not_be_read_later(conn: Connection, admission: str) -> None:
    policy = f'{{"admission":{admission}}}'
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="admission in a policy is not valid"):
        conn.execute("select stepwell.enqueue_many('{work}', '{\"{}\"}', _policies => array[%s])", [policy])


def test_a_key_with_control_characters_is_refused(app: App, conn: Connection) -> None:
    @app.task(limit=Limit(1, key="{tenant}"))
    def report(tenant: str) -> None: ...

    # Such a permit would count against the limit of a queue.
    forged = "\x02default"
    with pytest.raises(BadArgs, match="control characters"):
        report.enqueue(forged)
    for rules in (
        '"limits":[{"key":"\\u0002default","most":1}]',
        '"rates":[{"key":"\\u0002q","interval":1,"burst":1}]',
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="not valid"):
            conn.execute("select stepwell.enqueue_many('{report}', '{\"{}\"}', _policies => %s)",
                         ([f'{{"admission":{{{rules}}}}}'],))  # fmt: skip
    with pytest.raises(psycopg.Error, match="no control characters"):
        conn.execute("select stepwell.set_limit(%s, 1)", (forged,))
    assert states(conn) == {}


async def test_a_misfit_whose_args_are_edited_lines_up_for_its_limit(app: App, conn: Connection) -> None:
    @app.task(limit=Limit(1, key="k"))
    async def work(n: int) -> None: ...

    first, second = await work.aenqueue(1), await work.aenqueue(2)
    conn.execute("select stepwell.admit_keys('{k}')")
    conn.execute(
        "update stepwell.job set state = 'scheduled', blocked_by = null, misfits = '{1}', misfit_until = u.at, "
        "run_at = u.at from (select now() + interval '1 hour') as u (at) where id = %s",
        [second.id],
    )
    assert await second.aedit_args(3)
    assert states(conn) == {"ready": 1, "blocked": 1}
    async with Worker(app):
        await first.aresult(timeout="20s")
        await second.aresult(timeout="20s")


async def test_a_job_that_is_moved_keeps_its_permits_and_tokens(app: App, conn: Connection) -> None:
    @app.task(limit=Limit(1, key="k"), rate=Rate(1, per="1h", key="r"), fair="{n}")
    async def work(n: int) -> None: ...

    job = await work.aenqueue(1)
    conn.execute("select stepwell.admit_keys('{k}')")
    assert await job.amove(queue="other")
    assert (states(conn), permits(conn)) == ({"ready": 1}, 2)
    async with Worker(app, queues=["other"]):
        await job.aresult(timeout="20s")
    assert permits(conn) == 0
