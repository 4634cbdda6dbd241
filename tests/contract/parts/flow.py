"""The schedule and the pause of the contract's flow.py; its limits, rates and unique jobs are not built yet."""

import asyncio
from collections import Counter
from zoneinfo import ZoneInfo

from stepwell import App, Context, Worker

app = App("embedded")
running: Counter[str] = Counter()
most: Counter[str] = Counter()


@app.task
async def report(tenant: str, n: int) -> None:
    running[tenant] += 1
    most[tenant] = max(most[tenant], running[tenant])
    await asyncio.sleep(0.02)
    running[tenant] -= 1


@app.schedule("0 9 * * mon-fri", tz="Europe/Paris", overlap="skip", catchup="once")
@app.task
async def morning(ctx: Context) -> None: ...


async def main() -> None:
    async with app:
        reports = [await report.aenqueue(t, n) for n in range(10) for t in ("a", "b")]
        await app.apause("default")
        async with Worker(app, concurrency=20):
            await asyncio.sleep(0.3)
            assert not most
            await app.aresume("default")
            for job in reports:
                await job.aresult(timeout="20s")
        [morning_schedule] = [s for s in await app.aschedules() if s.task == "morning"]
        assert morning_schedule.next_run_at.astimezone(ZoneInfo("Europe/Paris")).hour == 9


if __name__ == "__main__":
    asyncio.run(main())
    print("ok")
