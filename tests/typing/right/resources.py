"""Resources: a job is enqueued without them, a direct call may have them, and their types are known."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import assert_type

from stepwell import App, AsyncTask, Context, Injected, SyncContext
from stepwell.plugins import Run
from stepwell.telemetry.jobs import AttemptFailed

app = App("postgresql:///right")


class Client:
    async def send(self, to: str) -> int:
        return len(to)


class Model: ...


class Pool: ...


@app.resource
async def client() -> AsyncIterator[Client]:
    yield Client()


@app.resource
def model() -> Iterator[Model]:
    yield Model()


@app.resource
def pool() -> AbstractAsyncContextManager[Pool]:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[Pool, None]:
        yield Pool()

    return opened()


@app.task
async def send(to: str, client: Client = Injected) -> int:
    return await client.send(to)


@app.task
async def with_context(ctx: Context, to: str, *, client: Client = Injected) -> int:
    assert_type(ctx.resource(Model), Model)
    return await client.send(to)


@app.task
def plain(ctx: SyncContext, model: Model = Injected) -> None:
    assert_type(ctx.resource(Pool), Pool)


@app.middleware
async def timed(run: Run, call: Callable[[], Awaitable[None]]) -> None:
    await call()


@app.on_event(AttemptFailed)
async def tell(event: AttemptFailed) -> None:
    print(event.task)


async def main() -> None:
    job = await send.aenqueue("ada")
    assert_type(await job.aresult(), int)
    assert_type(await send("ada", Client()), int)
    await with_context.aenqueue(to="ada")
    plain.enqueue()
    checked: AsyncTask[..., int] = send
    print(checked)
