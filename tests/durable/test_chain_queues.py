"""The steps of a chain, and the states of a machine, may have queues of their own."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell import App, Done, Next, Step, Worker


async def test_a_worker_claims_from_the_queues_of_a_chains_steps(app: App) -> None:
    async def one(number: int) -> int:
        return number + 1

    async def two(number: int) -> int:
        return number * 2

    chain = app.chain("chain", one, Step(two, queue="elsewhere"))
    async with Worker(app):
        assert await (await chain.aenqueue(1)).aresult(timeout=10) == 4


async def test_a_worker_claims_from_the_queues_of_a_machines_states(app: App) -> None:
    machine = app.machine("machine")

    @dataclass
    class Last:
        number: int

        async def run(self) -> Done[int]:
            return Done(self.number)

    @machine.state(start=True)
    @dataclass
    class First:
        number: int

        async def run(self) -> Next[Last]:
            return Next(Last(self.number + 1))

    machine.state(queue="elsewhere")(Last)
    async with Worker(app):
        assert await (await machine.aenqueue(First(1))).aresult(timeout=10) == 2
