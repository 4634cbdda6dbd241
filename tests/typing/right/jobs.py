"""Jobs by filter, and one job changed, as users write it."""

from typing import assert_type
from uuid import uuid4

from stepwell import App, JobFilters, JobInfo, State

app = App("embedded")


@app.task
async def confirm(order_id: int) -> str:
    return str(order_id)


async def main(state: State) -> None:
    page = await app.ajobs(state=state, task=confirm, metadata={"tenant": 7}, newer_than="1d", limit=10)
    assert_type(page, list[JobInfo])
    await app.ajobs(state=["failed", "cancelled"], before=page[-1])
    assert_type(await app.acount_jobs(task="confirm", at_most=10_000), int)
    assert_type(await app.acancel_jobs("mail", task=confirm, reason="enough"), int)
    assert_type(await app.aretry_jobs(everything=True, from_start=True), int)
    mine: JobFilters = {"queue": "mail", "worker": uuid4(), "error": None}
    await app.ajobs(**mine)
    job = await confirm.aenqueue(1)
    assert_type(await job.aedit_args(2), bool)
    assert_type(await job.arun_now(), bool)
    assert_type(await job.aexists(), bool)
    assert_type(await job.aretry(step="parse", input=[1]), bool)
