"""A durable function: a checkout that is paid, or undone. `python examples/order_checkout.py`.

It reserves the goods, asks for the money and waits for the event "paid". If that does not come in time, or anything
else fails for good, what was done is undone, the last first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import uuid4

from stepwell import App, Context, Fail, JobFailed, Retry, Worker

app = App("embedded")


@dataclass
class Invoice:
    number: str
    cents: int


async def reserve(order_id: str, skus: list[str]) -> str:
    print(f"  {order_id}: {', '.join(skus)} reserved")
    return f"reservation-{order_id}"


async def release(reservation: str) -> None:
    print(f"  undo: {reservation} released")


asked: set[str] = set()


async def send_invoice(order_id: str, cents: int) -> Invoice:
    if order_id not in asked:  # the first try fails: the step is tried again, and the job does not notice
        asked.add(order_id)
        raise ConnectionError("the mail server is away")
    print(f"  {order_id}: invoice over {cents / 100:.2f} sent")
    return Invoice(f"invoice-{order_id}", cents)


async def void(invoice: Invoice) -> None:
    print(f"  undo: {invoice.number} over {invoice.cents / 100:.2f} voided")


@app.task
async def pack(sku: str) -> str:
    return f"parcel with {sku}"


@app.task
async def checkout(ctx: Context, order_id: str, skus: list[str], patience: str) -> list[str]:
    await ctx.step(reserve, order_id, skus, undo=release)
    cents = 1000 * len(skus)
    await ctx.step(send_invoice, order_id, cents, retry=Retry(max_attempts=5, initial="50ms"), undo=void)
    paid = await ctx.wait_for("paid", key=order_id, timeout=patience)  # without a slot, for days if need be
    if paid.timed_out:
        raise Fail("nobody paid")
    # Children: jobs of their own, side by side. The handler is run again when they have ended; what stands between the
    # steps, such as a print here, would be done again, too.
    parcels = await ctx.gather(*[ctx.spawn(pack, sku) for sku in skus])
    return [f"{parcel}, paid by {paid.value['by']}" for parcel in parcels]


async def main() -> None:
    async with app, Worker(app):
        print("an order that is paid:")
        order_id = f"order-{uuid4().hex[:4]}"
        job = await checkout.aenqueue(order_id, ["tea", "honey"], patience="7d")
        await app.aemit("paid", key=order_id, value={"by": "Ada"})  # it may come before the job waits for it
        print(f"  {', '.join(await job.aresult(timeout='30s'))}")

        print("an order that nobody pays:")
        job = await checkout.aenqueue(f"order-{uuid4().hex[:4]}", ["salt"], patience="300ms")
        try:
            await job.aresult(timeout="30s")
        except JobFailed as failed:
            print(f"  failed: {failed.message}")
        info = await job.ainfo()
        assert info is not None
        print(f"  its steps: {', '.join(step.key for step in info.steps)}")


if __name__ == "__main__":
    asyncio.run(main())
