"""Run a job through several versions of its code, as deploys do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waiting import auntil

from stepwell import App, Worker


async def deployed(dsn: str, *versions: Callable[[App], Any]) -> Any:
    """Run one job through versions of its code, each until it waits; the last to its end."""
    job: Any = None
    for number, version in enumerate(versions, 1):
        async with App(dsn) as app:
            task = version(app)
            if job is None:
                job = await task.aenqueue()
            async with Worker(app):
                if number == len(versions):
                    return await app.job(job.id).aresult(timeout="10s")
                await auntil(lambda app=app, job=job: waits(app.job(job.id)))
            await app.aemit("deployed")
    raise AssertionError


async def waits(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "waiting"
