"""A durable function: a checkout that is paid or compensated. Run it with `python examples/order_checkout.py`.

It reserves the goods, sends an invoice and waits for the event "paid". If the event does not arrive in time, or
anything else fails permanently, Stepwell compensates the finished steps, the last first.
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


tried: set[str] = set()


async def send_invoice(order_id: str, cents: int) -> Invoice:
    if order_id not in tried:  # the first try fails; Stepwell retries the step without using an attempt of the job
        tried.add(order_id)
        raise ConnectionError("the mail server is down")
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
    paid = await ctx.wait_for("paid", key=order_id, timeout=patience)  # takes no slot, even for days
    if paid.timed_out:
        raise Fail("nobody paid")
    # The children are separate jobs that run concurrently. When they have ended, Stepwell replays this function. Code
    # between the steps, such as a print here, would run again.
    parcels = await ctx.gather(*[ctx.spawn(pack, sku) for sku in skus])
    return [f"{parcel}, paid by {paid.value['by']}" for parcel in parcels]


async def main() -> None:
    async with app, Worker(app):
        print("an order that is paid:")
        order_id = f"order-{uuid4().hex[:4]}"
        job = await checkout.aenqueue(order_id, ["tea", "honey"], patience="7d")
        await app.aemit("paid", key=order_id, value={"by": "Ada"})  # may arrive before the job waits for it
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
