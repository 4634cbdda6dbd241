"""Chains and machines with limits, rates, unique keys and fair turns: they are rules for the job as a whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, Done, JobFailed, Limit, Next, Rate, Retry, Step, Unique, Worker


async def test_a_limit_counts_a_chain_from_its_first_step_to_its_last(app: App, conn: psycopg.Connection[Any]) -> None:
    running: set[str] = set()
    most: list[int] = []

    async def fetch(name: str) -> str:
        running.add(name)
        most.append(len(running))
        return name

    async def parse(name: str) -> str:
        await asyncio.sleep(0.005)
        return name

    async def store(name: str) -> str:
        running.remove(name)
        return name

    # Between two steps the job leaves its worker, as another queue asks.
    chain = app.chain(
        "ingest", fetch, Step(parse, queue="cpu"), Step(store, priority=3), limit=Limit(2, key="all"), fair="{name}"
    )
    async with Worker(app, concurrency=10):
        jobs = await chain.aenqueue_many([{"name": str(n)} for n in range(12)])
        for job in jobs:
            await job.aresult(timeout="30s")
    assert max(most) == 2
    assert conn.execute("select count(*) from stepwell.permit").fetchall() == [(0,)]


async def test_a_chain_that_waits_gives_its_place_to_the_next_unless_it_holds_it(app: App) -> None:
    def first(n: int) -> Next[int]:
        return Next(n, after="1h")

    def second(n: int) -> int:
        return n

    gives = app.chain("gives", first, second, limit=Limit(1))
    holds = app.chain("holds", first, second, limit=Limit(1, hold=True))
    async with Worker(app):
        one, two = await gives.aenqueue(1), await gives.aenqueue(2)
        for job in (one, two):
            await auntil(lambda job=job: _is(job, "waiting"))
        three, four = await holds.aenqueue(3), await holds.aenqueue(4)
        await auntil(lambda: _is(three, "waiting"))
        why = await four.awhy()
        assert (why.cause, why.jobs) == ("limit", (three.id,))


async def _is(job: Any, state: str) -> bool:
    return (await job.ainfo()).state == state


async def test_a_rate_takes_one_token_for_a_chain(app: App, conn: psycopg.Connection[Any]) -> None:
    async def one() -> int:
        return 1

    async def two(n: int) -> int:
        return n + 1

    chain = app.chain("calls", one, Step(two, queue="other"), rate=Rate(2, per="1h", key="api"))
    async with Worker(app):
        jobs = [await chain.aenqueue() for _ in range(3)]
        assert [await job.aresult(timeout="20s") for job in jobs[:2]] == [2, 2]
        assert (await jobs[2].awhy()).cause == "rate"


async def test_the_rules_of_a_machine_read_the_state_that_it_begins_with(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    machine = app.machine("subscription", unique=Unique("{state.customer}"), limit=Limit(1, key="{state.plan}"))

    @machine.state(start=True)
    @dataclass
    class Trial:
        customer: str
        plan: str = "basic"

        async def run(self) -> Next[Active]:
            return Next(Active(1))

    @machine.state
    @dataclass
    class Active:
        n: int

        async def run(self) -> Done[int]:
            return Done(self.n)

    first, again = await machine.aenqueue(Trial("ada")), await machine.aenqueue(Trial("ada"))
    other = await machine.aenqueue(Trial("bob"))
    assert (first.id == again.id, again.inserted, other.inserted) == (True, False, True)
    assert (await other.awhy()).subject == "the key 'basic' has a limit of 1; 1 ahead in line"
    async with Worker(app):
        assert [await job.aresult(timeout="20s") for job in (first, other)] == [1, 1]
    every = app.machine("every", unique=True)

    @dataclass
    class A:
        n: int

        def run(self) -> Done[int]:
            return Done(self.n)

    class B(A): ...

    for state in (A, B):
        every.state(start=True)(state)
    states = [state(n) for state in (A, B) for n in (1, 2)]
    assert [(await every.aenqueue(state)).inserted for state in (*states, *states)] == [True] * 4 + [False] * 4


def test_what_cannot_be_a_rule_of_a_flow_is_refused(app: App) -> None:
    async def one(n: int) -> int:
        return n

    # Without types, so that wrong options can be written.
    untyped: Any = app
    step: Any = Step

    with pytest.raises(ConfigError, match="which names 'm': the arguments are n"):
        untyped.chain("a", one, unique="{m}")
    with pytest.raises(ConfigError, match="the arguments are state"):
        app.machine("b", limit=Limit(1, key="{customer}"))
    with pytest.raises(TypeError, match=r"app.chain\(\) has no option 'batch'"):
        untyped.chain("c", one, batch=3)
    with pytest.raises(
        TypeError, match=r"Step\(\) has no option 'limit': write it on the chain: app.chain\(..., limit"
    ):
        untyped.chain("d", step(one, limit=Limit(1)))
    with pytest.raises(ConfigError, match=r"limits is one Limit: write limit=Limit"):
        untyped.chain("e", one, limits=Limit(1))
    with pytest.raises(ConfigError, match=r"rate is 5: give a Rate, such as Rate\(5\)"):
        untyped.task(rate=5)(one)


async def test_a_state_or_step_that_forgot_await_is_told(app: App) -> None:
    async def later() -> int:
        return 1

    def step() -> Any:
        return later()

    chain = app.chain("chain", step, retry=Retry(max_attempts=1))
    machine = app.machine("machine", retry=Retry(max_attempts=1))

    @machine.state(start=True)
    @dataclass
    class Start:
        n: int

        def run(self) -> Any:
            return later()

    async with Worker(app):
        for job in (await chain.aenqueue(), await machine.aenqueue(Start(1))):
            with pytest.raises(JobFailed, match="returned a coroutine: write 'await' before the call"):
                await job.aresult(timeout="20s")
