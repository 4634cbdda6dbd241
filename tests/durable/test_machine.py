"""A machine: each state is a value whose run() says what comes next."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, Done, JobFailed, Machine, Next, Retry, SyncContext, Worker
from stepwell.errors import BadArgs, ConfigError

SOON = Retry(max_attempts=3, initial="5ms", jitter=0)
ONCE = Retry(max_attempts=1)


@dataclass
class Count:
    to: int
    at: int = 0

    async def run(self, ctx: Context) -> Next[Any]:
        if self.at < self.to:
            return Next(Count(self.to, self.at + 1))
        return Next(Say(f"counted to {self.at}"), after="20ms")


@dataclass
class Say:
    word: str

    def run(self, ctx: SyncContext) -> Done[str]:
        assert ctx.attempt == 1
        return Done(self.word)


@pytest.fixture
def machine(app: App) -> Machine:
    machine = app.machine("counter")
    machine.state(start=True)(Count)
    machine.state(Say)
    return machine


@pytest.mark.counts_runs
async def test_a_machine_goes_from_state_to_state(app: App, machine: Machine, conn: psycopg.Connection[Any]) -> None:
    async with Worker(app):
        job = await machine.aenqueue(Count(50))
        assert await job.aresult(timeout="10s") == "counted to 50"
        info = await job.ainfo()
        by_sql = conn.execute("""select stepwell.enqueue('counter', '{"state": {"Count": {"to": 1}}}')""").fetchone()
        assert await app.job(by_sql[0] if by_sql else "").aresult(timeout="10s") == "counted to 1"
    assert info is not None
    assert (info.cursor, info.epoch) == ("Say", 2)
    # A state that is entered time and again has one row.
    assert [(step.key, step.value) for step in info.steps] == [
        ("Count", {"to": 50, "at": 50}),
        ("Say", {"word": "counted to 50"}),
    ]


async def test_a_state_has_a_policy_of_its_own_and_is_resumed_where_it_stood(app: App) -> None:
    ran: list[str] = []
    broken = True
    machine = app.machine("policy", retry=ONCE)

    @machine.state(start=True)
    @dataclass
    class One:
        n: int

        def run(self) -> Next[Any]:
            ran.append("one")
            return Next(Two(self.n + 1))

    @machine.state(retry=SOON, name="two")
    @dataclass
    class Two:
        n: int

        async def run(self, ctx: Context) -> Done[int]:
            ran.append(f"two {ctx.attempt}")
            if broken:
                raise ConnectionError("busy")
            return Done(self.n)

    async with Worker(app):
        job = await machine.aenqueue(One(1))
        with pytest.raises(JobFailed, match="busy"):
            await job.aresult(timeout="10s")
        assert ran == ["one", "two 1", "two 2", "two 3"]
        broken = False
        assert await job.aretry(step="two")
        assert await job.aresult(timeout="10s") == 2
    assert ran[4:] == ["two 1"]


async def test_what_is_not_a_state_is_refused_with_those_there_are(app: App, machine: Machine) -> None:
    lost = app.machine("lost", retry=ONCE)

    @lost.state(start=True)
    @dataclass
    class Goes:
        kind: str

        def run(self) -> Any:
            return {"stranger": Next(Say("x")), "nothing": None}[self.kind]

    for given, said in (
        (Say("x"), "does not begin with 'Say', but with Count"),
        (Goes("x"), "is not a state of machine 'counter'"),
        ("Count", "is not a state"),
    ):
        with pytest.raises(BadArgs, match=said):
            await machine.aenqueue(given)
    with pytest.raises(BadArgs, match="enqueued with one state"):
        await machine.aenqueue(Count(1), Count(2))  # pyright: ignore[reportCallIssue]
    async with Worker(app):
        with pytest.raises(JobFailed, match="is not a state of machine 'lost'"):
            await (await lost.aenqueue(Goes("stranger"))).aresult(timeout="10s")
        with pytest.raises(JobFailed, match=r"return Next\(State\(...\)\) or Done\(value\)"):
            await (await lost.aenqueue(Goes("nothing"))).aresult(timeout="10s")
        wrong = app.job(await enqueue(app, '{"state": {"Gone": {}}}'))

        async def held() -> str | None:
            info = await wrong.ainfo()
            return info.error if info is not None else None

        assert "machine 'counter' has no state 'Gone': it has Count, Say" in str(await auntil(held))
    with pytest.raises(ConfigError, match="no method run"):
        machine.state(str)
    with pytest.raises(ConfigError, match="two states named 'Say'"):
        machine.state(Say)


async def enqueue(app: App, args: str) -> str:
    async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True) as conn:
        found = await (await conn.execute("select stepwell.enqueue('counter', %s)", (args,))).fetchone()
    return found[0] if found else ""


@pytest.mark.slow
async def test_a_machine_may_go_round_for_ever_without_growing(app: App, conn: psycopg.Connection[Any]) -> None:
    entered: list[float] = []
    machine = app.machine("endless")

    @machine.state(start=True)
    @dataclass
    class Round:
        to: int
        at: int = 0

        async def run(self, ctx: Context) -> Next[Any] | Done[int]:
            entered.append(time.monotonic())
            return Next(Round(self.to, self.at + 1)) if self.at < self.to else Done(self.at)

    async with Worker(app):
        job = await machine.aenqueue(Round(1500))
        assert await job.aresult(timeout="90s") == 1500
    # Compared with each other, since a busy machine slows all rounds down; by medians, since it does so in bursts.
    took = [after - before for before, after in pairwise(entered)]
    assert median(took[-300:]) < 3 * median(took[100:400])
    assert conn.execute("select json_array_length(steps) from stepwell.history").fetchone() == (1,)
