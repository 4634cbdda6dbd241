"""A worker of the round: `python program.py`, on the database in STEPWELL_DATABASE_URL.

It ends by SIGTERM, by SIGKILL, or because somebody asked all workers to stop.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Any

from stepwell import (
    App,
    Cancel,
    Context,
    Done,
    Fail,
    JobFailed,
    Next,
    Restart,
    Retry,
    RetryIn,
    Snooze,
    Step,
    SyncContext,
    Worker,
)  # fmt: skip
from stepwell.telemetry.worker import WorkerStarted

_EFFECT = "insert into fuzz.effect (job_id) values (%s::uuid)"
_QUICK = Retry(max_attempts=4, initial="10ms", cap="100ms")
_PATIENT = Retry(max_attempts=1_000_000, initial="10ms", cap="200ms")


app = App(name="fuzz", pool_size=3, retry=_QUICK)


@app.task
async def plain(n: int = 0) -> int:
    await asyncio.sleep(n / 1000)
    return n


@app.task
def failing(ctx: SyncContext, n: int = 0) -> int:
    """Ends in every way there is; not for ever in one that begins anew, however many attempts it was given."""
    if ctx.epoch > 5:
        return n
    match n:
        case 1:
            raise Fail("for good")
        case 2:
            raise Cancel("not wanted")
        case 3:
            raise Snooze("20ms")
        case 4:
            raise RetryIn("20ms")
        case 5:
            return "no number"  # pyright: ignore[reportReturnType]
        case _:
            raise ValueError("\ud800 and \0, which no database keeps")


@app.task
async def leaf(ctx: Context, n: int = 0) -> int:
    if n == 7:
        raise Fail("a leaf that falls")
    return await ctx.step(double, n)


@app.task
async def steps(ctx: Context, n: int = 0) -> Any:
    one = await ctx.step(double, n, key="a")
    await ctx.sleep(n / 100)
    big = await ctx.step(grow, 70_000 if n == 3 else 5, key="b")
    async with ctx.transaction("c") as tx:
        tx.save(n)
    return [one, len(big), tx.value, str(ctx.uuid())]


@app.task
async def family(ctx: Context, n: int = 0) -> Any:
    try:
        first = await ctx.spawn(leaf, n)
    except JobFailed:
        first = -1
    return [first, await ctx.gather(*ctx.spawn_many(leaf, [{"n": 1}, {"n": 2}]), return_exceptions=True)]


@app.task
async def listener(ctx: Context, n: int = 0) -> Any:
    both = await ctx.first(ctx.wait_for("paid", key="1"), ctx.sleep(0.5))
    word = await ctx.receive("word", timeout=n / 5)
    return [both.branch, word.timed_out]


@app.task(transaction=True)
async def paid(ctx: Context, n: int = 0) -> int:
    await ctx.connection.execute(_EFFECT, (ctx.id,))
    if n == 4:
        raise Fail("rolled back")
    return n


@app.task
async def undone(ctx: Context, n: int = 0) -> None:
    await ctx.step(double, n, key="a", undo=give_back)
    await ctx.step(double, n, key="b", undo=give_back)
    await ctx.sleep(n / 10)
    raise Fail("and back")


@app.task
async def restarting(ctx: Context, n: int = 0) -> int | Restart:
    await ctx.step(double, n)
    return Restart(min(n, 5) - 1) if n > 0 else 0


@app.task(process=True)
def apart(n: int = 0) -> int:
    return n + 1


async def fetch(n: int = 0) -> int:
    return n


async def parse(n: int) -> Next[int]:
    return Next(n, after="50ms")


def store(n: int) -> int:
    if n == 6:
        raise ValueError("not stored")
    return n


app.chain("chain", fetch, Step(parse, retry=_QUICK), Step(store, queue="batch"))
machine = app.machine("machine")


@machine.state(start=True)
@dataclass
class Count:
    n: int = 0

    async def run(self) -> Next[Count] | Next[Rest]:
        return Next(Count(self.n - 1)) if 0 < self.n < 9 else Next(Rest(self.n), after="20ms")


@machine.state
@dataclass
class Rest:
    n: int

    async def run(self) -> Done[int]:
        return Done(self.n)


witness: dict[str, Any] = {"queue": "witness", "retry": _PATIENT, "keep": "forever", "keep_failed": "forever"}


@app.task(**witness)
async def witness_plain(n: int = 0) -> int:
    return n


@app.task(**witness)
async def witness_steps(ctx: Context, n: int = 0) -> int:
    one = await ctx.step(double, n)
    await ctx.sleep(0.05)
    return await ctx.spawn(witness_plain, one)


@app.task(transaction=True, **witness)
async def witness_paid(ctx: Context, n: int = 0) -> int:
    await ctx.connection.execute(_EFFECT, (ctx.id,))
    return n


async def double(n: int) -> int:
    return 2 * n


async def grow(size: int) -> str:
    return "s" * size


async def give_back(_: int) -> None:
    pass


async def main() -> None:
    worker = Worker(
        app, queues=["*"], concurrency=12, process_slots=1, lease="4s", renew="500ms", poll="500ms", grace="3s"
    )
    worker.subscribe(lambda event: print("started", flush=True) if isinstance(event, WorkerStarted) else None)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    async with app:
        await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    # Its tasks fail on purpose, and workers are killed: that is no finding.
    logging.getLogger("stepwell").addFilter(
        lambda record: getattr(record, "event", None) not in ("AttemptFailed", "RescuedJobFailed")
    )
    asyncio.run(main())
