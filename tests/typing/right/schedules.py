"""Schedules and control as users write them."""

from datetime import datetime, timedelta
from typing import assert_type

from stepwell import App, Call, Context, JobHandle, Retry, ScheduleInfo, Tick, Worker, preview

app = App("embedded", name="shop", stale_schedules="keep", schedule_grace="1h")


@app.schedule("0 9 * * mon-fri", tz="Europe/Paris", overlap="skip", catchup="once")
@app.schedule(timedelta(minutes=5), name="often", args={"n": 1}, overlap="queue", catchup=5, jitter="10s")
@app.task
async def report(ctx: Context, n: int = 0) -> int:
    assert_type(ctx.scheduled_for, datetime | None)
    return n


assert_type(report.call(n=1), Call[int])


async def main() -> None:
    made = await app.aschedule_task(report, "1h", name="hourly", retry=Retry(), keep="forever", metadata={"by": "Ada"})
    assert_type(made, ScheduleInfo)
    handle = app.schedule_named("hourly")
    assert_type(await handle.aticks(), list[Tick])
    await handle.apause()
    job = await handle.atrigger()
    assert isinstance(job, JobHandle)
    for schedule in await app.aschedules():
        assert_type(schedule.preview(3), list[datetime])
    await app.apause("mail")
    await app.aresume(task=report)
    assert_type(await app.astop(everything=True), int)
    async with Worker(app, queues={"mail": 2, "*": 20}), Worker(app, queues=["a", "b"], balance={"a": 3}):
        pass
    assert_type(preview("@hourly", n=2), list[datetime])
