"""The worker end to end: what goes in is run."""

from stepwell import App, Worker


async def test_a_job_is_run_and_its_result_read(app: App) -> None:
    @app.task
    async def add(x: int, y: int) -> int:
        return x + y

    async with Worker(app):
        job = await add.aenqueue(2, y=3)
        assert await job.aresult(timeout="10s") == 5
