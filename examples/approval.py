"""A machine: a request waits until a manager decides, or gives up. Run it with `python examples/approval.py`.

Each state is a dataclass whose `run` decides what comes next. A waiting job takes no slot and no memory: only its
current state is stored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import uuid4

import psycopg

from stepwell import App, Context, Done, Next, Worker

app = App("embedded")
machine = app.machine("approval")


async def decision_on(request: str) -> str | None:
    async with await psycopg.AsyncConnection.connect(app.dsn) as connection:
        found = await connection.execute("select verdict from decision where request = %s", (request,))
        row = await found.fetchone()
    return None if row is None else str(row[0])


@machine.state(start=True)
@dataclass
class Asked:
    request: str
    cents: int

    async def run(self) -> Next[Waiting] | Done[str]:
        if self.cents < 1000:
            return Done("approved automatically: the amount is small")
        print(f"  {self.request}: waiting for the manager")
        return Next(Waiting(self.request))


@machine.state(timeout="10s")
@dataclass
class Waiting:
    request: str
    checks: int = 0

    async def run(self, ctx: Context) -> Next[Waiting] | Next[Decided] | Done[str]:
        ctx.logger.debug("check %d", self.checks)
        verdict = await decision_on(self.request)
        if verdict is not None:
            return Next(Decided(self.request, verdict))
        if self.checks == 20:
            return Done("given up: nobody decided")
        return Next(Waiting(self.request, self.checks + 1), after="100ms")  # a real program waits "1h"


@machine.state
@dataclass
class Decided:
    request: str
    verdict: str

    async def run(self) -> Done[str]:
        print(f"  {self.request}: {self.verdict}")
        return Done(self.verdict)


async def main() -> None:
    async with app, Worker(app):
        async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True) as connection:
            await connection.execute("create table if not exists decision (request text primary key, verdict text)")
            print("three requests:")
            small = await machine.aenqueue(Asked("pencils", 500))
            chair, boat = f"chair-{uuid4().hex[:4]}", f"boat-{uuid4().hex[:4]}"
            decided = await machine.aenqueue(Asked(chair, 20_000))
            ignored = await machine.aenqueue(Asked(boat, 9_000_000))
            await connection.execute("insert into decision values (%s, 'approved')", (chair,))
        print(f"pencils: {await small.aresult(timeout='30s')}")
        print(f"{chair}: {await decided.aresult(timeout='30s')}")
        print(f"{boat}: {await ignored.aresult(timeout='30s')}")


if __name__ == "__main__":
    asyncio.run(main())
