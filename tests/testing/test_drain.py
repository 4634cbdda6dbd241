"""Draining jobs that wait for the limit or rate of their key."""

from __future__ import annotations

from stepwell import App, Limit, Rate
from stepwell.testing import drain


def test_jobs_in_the_line_of_a_limit_are_drained(app: App) -> None:
    @app.task(limit=Limit(2, key="one"))
    async def limited(n: int) -> int:
        return n

    jobs = limited.enqueue_many([{"n": n} for n in range(10)])
    assert drain(app) == 10
    assert [job.result() for job in jobs] == list(range(10))


def test_jobs_without_room_stay_in_line(app: App) -> None:
    @app.task(limit=Limit(2, key="closed"))
    async def limited() -> None: ...

    @app.task(rate=Rate(1, per="1h"))
    async def rated() -> None: ...

    app.set_limit("closed", 0)
    limited.enqueue()
    rated.enqueue_many([{}, {}])
    assert drain(app) == 1
    assert app.count_jobs(state="blocked") == 2
