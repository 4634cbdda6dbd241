"""The group of the contract's groups_and_batches.py."""

import asyncio

from stepwell import App, GroupSummary, Rate, Worker

app = App("embedded")
told: list[tuple[int, int]] = []


@app.task
async def embed_one(n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return n


@app.task(rate=Rate(1000, per="1s", key="mail"))
async def tell(summary: GroupSummary) -> None:
    told.append((summary.succeeded, summary.failed))


async def main() -> None:
    async with app, Worker(app, concurrency=60):
        group = await app.agroup([embed_one.using(max_attempts=1).call(n) for n in range(10)], then=tell)
        summary = await group.aresult(timeout="20s")
        assert (summary.succeeded, summary.failed, summary.total) == (9, 1, 10), summary
        await group.then.aresult(timeout="20s")
        assert told == [(9, 1)], told


if __name__ == "__main__":
    asyncio.run(main())
    print("ok")
