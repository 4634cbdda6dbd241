"""What users write, and what a type checker must know of it."""

import asyncio
from typing import assert_type
from uuid import UUID

from stepwell import App, Call, Context, JobHandle, Retry, Worker

app = App("embedded")


@app.task
async def add(x: int, y: int = 0) -> int:
    return x + y


@app.task(queue="mail", timeout="30s")
def greet(name: str) -> str:
    return name


@app.task
async def settle(ctx: Context, order_id: int) -> None:
    assert_type(ctx.attempt, int)


@app.task(transaction=True)
def plain(ctx: Context, order_id: int) -> list[str]:
    return []


@app.on_worker_start
async def open_client() -> None: ...


@app.on_worker_stop
def close_client() -> bool:
    return True


assert_type(close_client(), bool)


async def main() -> None:
    async with app, Worker(app, queues=["default"], concurrency=5):
        job = await add.aenqueue(2, y=3)
        assert_type(job, JobHandle[int])
        assert_type(job.id, UUID)
        assert_type(await job.aresult(timeout="10s"), int)
        assert_type(await (await settle.aenqueue(7)).aresult(), None)
        assert_type(await greet.using(delay="1s", priority=5).aenqueue("Ada"), JobHandle[str])
        many = await greet.aenqueue_many([{"name": "a"}, greet.using(priority=1).call("b")])
        assert_type(many, list[JobHandle[str]])
        assert_type(greet.call("x"), Call[str])
        own = greet.using(retry=Retry(max_attempts=2), timeout="1m", keep="forever", keep_failed=0)
        assert_type(await own.aenqueue("Ada"), JobHandle[str])
        info = await job.ainfo()
        if info is not None:
            assert_type(info.attempt, int)


def sync() -> None:
    with app:
        assert_type(greet.enqueue("Ada").result(timeout=5), str)
        assert_type(plain.enqueue(1).result(), list[str])


if __name__ == "__main__":
    asyncio.run(main())
