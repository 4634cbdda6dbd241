"""Durable functions, chains and machines: what is known of their values."""

from dataclasses import dataclass
from typing import assert_type

from stepwell import App, Child, Context, Done, Event, JobHandle, Next, Restart, SyncContext

app = App("embedded")


async def charge(order_id: int, cents: int) -> float:
    return order_id + cents / 100


def label(sku: str) -> list[str]:
    return [sku]


@app.task
async def ship(order_id: int) -> str:
    return str(order_id)


@app.task
async def checkout(ctx: Context, order_id: int) -> str | Restart:
    assert_type(await ctx.step(charge, order_id, 300), float)
    assert_type(await ctx.step(label, "a", key="first"), list[str])
    assert_type(await ctx.wait_for("paid", key="7", timeout="1h"), Event)
    child = ctx.spawn(ship, order_id)
    assert_type(child, Child[str])
    assert_type(await child, str)
    assert_type(await ctx.spawn(ship.using(priority=3), order_id=order_id), str)
    assert_type(await ctx.gather(*ctx.spawn_many(ship, [{"order_id": 1}])), list[str])
    async with ctx.transaction("books") as tx:
        await tx.execute("select 1")
        tx.save(order_id)
    return Restart(order_id + 1)


@app.task
def plain(ctx: SyncContext, sku: str) -> list[str]:
    assert_type(ctx.spawn(ship, 7).result(), str)
    return ctx.step(label, sku)


ingest = app.chain("ingest", label, len)

machine = app.machine("greeter")


@machine.state(start=True)
@dataclass
class Hello:
    name: str

    async def run(self, ctx: Context) -> Next["Hello"] | Done[str]:
        return Done(self.name) if ctx.attempt else Next(self, after="1s")


async def main() -> None:
    assert_type(await checkout.aenqueue(7), JobHandle[str | Restart])
    await plain.aenqueue("a")
    await machine.aenqueue(Hello("ada"))
