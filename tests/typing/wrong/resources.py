"""Wrong uses of resources, middleware and hooks."""

from collections.abc import AsyncIterator

from stepwell import App, Context, Injected
from stepwell.telemetry.jobs import AttemptFailed, JobSucceeded

app = App("postgresql:///wrong")


class Client: ...


@app.resource  # error
async def needs(name: str) -> AsyncIterator[Client]:
    yield Client()


@app.task
async def send(ctx: Context, to: str, client: Client = Injected) -> int:
    number: int = ctx.resource(Client)  # error
    return number


@app.middleware  # error
def plain() -> None: ...


@app.on_event(AttemptFailed)  # error
async def tell(event: JobSucceeded) -> None: ...


async def main() -> None:
    await send.aenqueue()  # error
    await send.aenqueue("ada", client=1)  # error
    await send.aenqueue("ada", other=1)  # error
