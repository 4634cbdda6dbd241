"""Fairness: keys take turns, by weight, within a queue and priority."""

from __future__ import annotations

import asyncio
from typing import Any, LiteralString

import psycopg
import pytest

from stepwell import App, ConfigError, Context, Fair, JobFailed, Limit, Retry, Step, Worker
from stepwell.contrib.prometheus import Prometheus
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries import health
from stepwell.telemetry.jobs import JobStarted

Connection = psycopg.Connection[Any]


async def test_a_small_key_does_not_wait_for_a_large_one(app: App) -> None:
    order = list[str]()

    @app.task(fair="{tenant}")
    async def export(tenant: str, n: int) -> None:
        order.append(f"{tenant}{n}")

    jobs = await export.aenqueue_many([{"tenant": "big", "n": n} for n in range(50)])
    jobs += await export.aenqueue_many([{"tenant": tenant, "n": n} for n in range(3) for tenant in ("x", "y")])
    async with Worker(app, concurrency=1):
        for job in jobs:
            await job.aresult(timeout="20s")
    # One of each key in each turn.
    assert [sorted(order[turn * 3 : turn * 3 + 3]) for turn in range(3)] == [
        [f"big{turn}", f"x{turn}", f"y{turn}"] for turn in range(3)
    ]
    # Within a key the order is kept.
    assert [job for job in order if job.startswith("big")] == [f"big{n}" for n in range(50)]


async def test_a_key_that_comes_later_begins_at_the_present_turn(app: App) -> None:
    order = list[str]()

    @app.task(fair="{tenant}")
    async def export(tenant: str, n: int) -> None:
        order.append(tenant)

    first = await export.aenqueue_many([{"tenant": "old", "n": n} for n in range(60)])
    async with Worker(app, concurrency=1):
        for job in first[:30]:
            await job.aresult(timeout="20s")
        await app.apause("default")
    done = len(order)
    late = await export.aenqueue_many([{"tenant": "new", "n": n} for n in range(40)])
    await app.aresume("default")
    async with Worker(app, concurrency=1):
        for job in (*first, *late):
            await job.aresult(timeout="20s")
    # Neither key starves the other: from now on they alternate.
    both = order[done : done + 2 * (60 - done)]
    assert abs(both.count("new") - both.count("old")) <= 2


async def test_weights_give_more_turns(app: App) -> None:
    order = list[str]()

    @app.task(fair=Fair("{tenant}", weights={"gold": 3}))
    async def export(tenant: str) -> None:
        order.append(tenant)

    jobs = await export.aenqueue_many([{"tenant": tenant} for tenant in ("gold", "tin") for _ in range(40)])
    async with Worker(app, concurrency=1):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert 28 <= order[:40].count("gold") <= 32


async def test_priority_comes_before_fairness_and_limits_keep_it(app: App) -> None:
    order = list[str]()

    @app.task(fair="{tenant}", limit=Limit(1, key="export"))
    async def export(tenant: str) -> None:
        order.append(tenant)

    jobs = await export.aenqueue_many([{"tenant": "big"}] * 20)
    jobs.append(await export.aenqueue("small"))
    jobs.append(await export.using(priority=1).aenqueue("urgent"))
    async with Worker(app, concurrency=10):
        for job in jobs:
            await job.aresult(timeout="20s")
    assert order[0] == "urgent"
    assert "small" in order[1:4]


@pytest.mark.slow
async def test_a_retried_job_takes_a_new_turn(app: App) -> None:
    order = list[str]()

    @app.task(fair="{tenant}", retry=Retry(max_attempts=2, initial=0, jitter=0))
    async def export(tenant: str, n: int) -> None:
        order.append(f"{tenant}{n}")
        await asyncio.sleep(0.003)
        if order.count("small0") == 1 and tenant == "small":
            raise ValueError("again")

    jobs = await export.aenqueue_many([{"tenant": "big", "n": n} for n in range(300)])
    jobs.append(await export.aenqueue("small", 0))
    async with Worker(app, concurrency=1):
        for job in jobs:
            await job.aresult(timeout="20s")
    first, second = (at for at, job in enumerate(order) if job == "small0")
    # Not at once, because the worker has claimed some jobs in advance; but not behind all the others.
    assert second - first < 250, order


def test_a_turn_that_is_long_ago_makes_no_job_old(dsn: str, conn: Connection) -> None:
    with App(dsn) as app:

        @app.task(fair="{tenant}")
        def work(tenant: str) -> None: ...

        # The clock of turns is behind if jobs are slow.
        conn.execute(
            "insert into stepwell.turn_clock (queue, rank, turn, moved_at)"
            " select 'default', r, now() - interval '5h', now() from unnest('{0,-1}'::integer[]) r"
        )
        work.enqueue("a")
        work.using(priority=1).enqueue("b")
        age = "select extract(epoch from now() - min(run_at)) from stepwell.job where state = 'ready'"
        assert conn.execute(age).fetchall()[0][0] > 4 * 3600

        def ages() -> list[float]:
            queries: tuple[LiteralString, ...] = (
                "select value from stepwell.gauges() where name = 'oldest'",
                "select extract(epoch from now() - stepwell.oldest_ready('default'))",
                "select extract(epoch from now() - oldest_ready_at) from stepwell.queues",
                "select extract(epoch from now() - (stepwell.backlog(1000) #>> '{oldest,at}')::timestamptz)",
            )
            [oldest] = fetch(conn, health.oldest_ready())
            return [*(float(conn.execute(query).fetchall()[0][0]) for query in queries), oldest.age]

        assert max(ages()) < 60
        # A job that has run before has been due since then at the earliest.
        conn.execute(
            "update stepwell.job set enqueued_at = now() - '9h'::interval, claimed_at = now() - '1h'::interval"
        )
        assert all(3540 < age < 3660 for age in ages())
        conn.execute("update stepwell.job set claimed_at = null, fair = null, admission = null, run_at = enqueued_at")
        assert all(9 * 3600 - 60 < age < 9 * 3600 + 60 for age in ages())


def test_bad_fairness_is_refused(app: App) -> None:
    def work(tenant: str) -> None: ...

    with pytest.raises(ConfigError, match="names no argument"):
        app.task(fair="tenant")(work)
    with pytest.raises(ConfigError, match="weight"):
        Fair("{tenant}", weights={"a": 0})
    with pytest.raises(ConfigError, match="give a weight by key"):
        Fair("{tenant}", weights=[1])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="write '7'"):
        Fair("{tenant}", weights={7: 2})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="fair is 3: give a template"):
        app.task(fair=3)(work)  # type: ignore[call-overload]


async def test_a_job_that_becomes_ready_again_is_claimed_at_once(app: App) -> None:
    # Its turn may be before the moment at which it becomes ready.
    @app.task(fair="{tenant}", retry=Retry(initial=0))
    async def fails_once(ctx: Context, tenant: str) -> None:
        if ctx.attempt == 1:
            raise ValueError

    @app.task(fair="{tenant}")
    async def sleeps(ctx: Context, tenant: str) -> None:
        await ctx.sleep("1ms")

    async def step(tenant: str) -> str:
        return tenant

    chain = app.chain("moves", step, Step(step, name="elsewhere", queue="other"), fair="{tenant}")
    async with Worker(app, poll=60):
        for task in (fails_once, sleeps, chain):
            for _ in range(2):
                job = await task.aenqueue("a")
                await job.aresult(timeout="20s")


async def test_only_the_first_run_of_a_fair_job_that_was_not_delayed_tells_how_long_it_waited(
    app: App, conn: Connection
) -> None:
    app.plugins.add(prometheus := Prometheus(), app)

    @app.task(fair="{tenant}", retry=Retry(max_attempts=2, backoff="fixed", initial=0))
    async def export(tenant: str) -> None:
        raise LookupError(tenant)

    started: list[JobStarted] = []
    app.subscribe(lambda event: started.append(event) if isinstance(event, JobStarted) else None)
    jobs = [await export.aenqueue("ada"), await export.using(delay=1).aenqueue("bob")]
    async with Worker(app):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.aresult(timeout="20s")
    assert len(started) == 4
    [waited] = [event.waited for event in started if event.waited is not None]
    assert waited < 60
    assert [counts.buckets()[-1][1] for counts in prometheus.counts().wait.values()] == [1]
    assert conn.execute("select sum(n) from stepwell.stats, unnest(waits) as n").fetchone() == (1,)
    assert conn.execute("select sum(n) from stepwell.stats, unnest(runs) as n").fetchone() == (4,)
