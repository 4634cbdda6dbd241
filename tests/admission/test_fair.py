"""Fairness: keys take turns, by weight, within a queue and priority."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from stepwell import App, ConfigError, Fair, Limit, Retry, Worker

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


def test_bad_fairness_is_refused(app: App) -> None:
    def work(tenant: str) -> None: ...

    with pytest.raises(ConfigError, match="names no argument"):
        app.task(fair="tenant")(work)
    with pytest.raises(ConfigError, match="weight"):
        Fair("{tenant}", weights={"a": 0})
