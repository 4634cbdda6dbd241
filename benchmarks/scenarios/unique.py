"""What unique keys cost an enqueue: lists of new keys, and of keys that are taken, beside plain lists in one round."""

from __future__ import annotations

import asyncio
import time

from benchmarks.run import BARE, Run
from stepwell import App, Task

_LIST = 1_000


def unique(run: Run) -> None:
    """Each list in turn, so that all three kinds have the same tables and the same machine."""
    lists, long_list = (10, 10_000) if run.quick else (50, 50_000)
    rates: dict[str, list[float]] = {}
    for _ in range(run.rounds):
        with run.stage(BARE) as stage:
            asyncio.run(_measure(stage.dsn, rates, lists, long_list))
    for size, jobs in (("short", _LIST), ("long", long_list)):
        for kind, what in (("new", "new keys"), ("taken", "keys that are taken")):
            run.record(
                "flow",
                f"enqueue_many of {jobs:,}, {what}",
                rates[f"{kind} {size}"],
                "jobs/s",
                "plain",
                rates[f"plain {size}"],
                at_least=0.6,
            )


async def _measure(dsn: str, rates: dict[str, list[float]], lists: int, long_list: int) -> None:
    async with App(dsn) as app:
        plain = app.task(name="plain")(_work)
        keyed = app.task(name="keyed", unique="{user}")(_work)
        spent: dict[str, float] = {"plain": 0.0, "new": 0.0, "taken": 0.0}
        for number in range(lists + 1):
            for kind, task in (("plain", plain), ("new", keyed), ("taken", keyed)):
                took = await _enqueue(task, f"short-{number}", _LIST)
                # The first list of each kind opens a connection and makes plans.
                spent[kind] += took if number else 0.0
        for kind, seconds in spent.items():
            rates.setdefault(f"{kind} short", []).append(lists * _LIST / seconds)
        for kind, task in (("plain", plain), ("new", keyed), ("taken", keyed)):
            rates.setdefault(f"{kind} long", []).append(long_list / await _enqueue(task, "long", long_list))


async def _enqueue(task: Task[[int, str], None], name: str, jobs: int) -> float:
    items = [{"n": n, "user": f"{name}-{n}"} for n in range(jobs)]
    began = time.perf_counter()
    await task.aenqueue_many(items)
    return time.perf_counter() - began


async def _work(n: int, user: str) -> None:
    """Nothing runs here: the jobs are only enqueued."""
