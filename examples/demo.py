"""A live demo of Stepwell, in half a minute: `make demo`, or with the dashboard `make demo WEB=1`.

It starts an embedded Postgres and two worker processes, and tells three stories: a burst of jobs, a durable checkout,
and a worker that is killed. It ends by itself, or on Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from stepwell import App, Context, Retry, StepInfo
from stepwell.telemetry.bus import counted

# The worker processes read the URL of the database from the environment.
app = App(os.environ.get("STEPWELL_DEMO_DATABASE", "embedded"))
console = Console(highlight=False)

BURST, PARCELS = 3000, 20
"""Jobs for each second that the demo shall take."""
LIVE = ("ready", "running", "scheduled")


@app.task(queue="burst", keep="1h")
async def ping(n: int) -> int:
    return n


@app.task(queue="parcels", transaction=True, retry=Retry(max_attempts=5, initial="100ms"))
async def deliver(ctx: Context, run: int, parcel: int) -> None:
    """The row commits together with the end of the job: both, or neither."""
    await asyncio.sleep(0.25)
    await ctx.connection.execute(
        "insert into demo_delivery (run, parcel, worker) values (%s, %s, %s)", (run, parcel, os.getpid())
    )


async def reserve(order: str) -> str:
    await asyncio.sleep(0.8)
    return f"2 jars of honey for {order}"


refused: set[str] = set()


async def charge(order: str) -> int:
    if order not in refused:  # the first try fails, and only this step is tried again
        refused.add(order)
        raise ConnectionError("the bank did not answer")
    await asyncio.sleep(0.8)
    return 1980


async def ship(order: str) -> str:
    await asyncio.sleep(0.8)
    return f"{order} is on its way"


@app.task(queue="orders")
async def checkout(ctx: Context, order: str) -> str:
    await ctx.step(reserve, order)
    await ctx.step(charge, order, retry=Retry(max_attempts=5, initial="300ms"))
    await ctx.wait_for("picked up", key=order, timeout="7d")
    return await ctx.step(ship, order)


class WorkersGone(Exception):
    """Nobody is left who runs jobs."""


@dataclass
class Demo:
    """The processes and the connection of the demo."""

    workers: list[subprocess.Popen[bytes]]
    connection: psycopg.AsyncConnection[Any]
    seconds: float

    async def one(self, query: Any, *params: Any) -> Any:
        row = await (await self.connection.execute(query, params)).fetchone()
        return None if row is None else row[0]

    async def watch(self) -> None:
        """Raise `WorkersGone` when both workers have ended."""
        while True:
            await asyncio.sleep(0.1)
            if all(worker.poll() is not None for worker in self.workers):
                raise WorkersGone

    async def clear(self, queue: str) -> None:
        """End what a demo that was interrupted has left in a queue."""
        if left := await app.acancel_jobs(queue):
            say(f"cancelled {counted(left, 'job')} of a demo that was interrupted")
        while await app.acount_jobs(queue=queue, state=LIVE):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def pause(self) -> None:
        """Time to read."""
        await asyncio.sleep(min(self.seconds / 15, 1.5))


def say(text: str, style: str = "") -> None:
    console.print(Text(f"  {text}", style))


def heading(text: str) -> None:
    console.print(Text(f"\n{text}", "bold"))


@contextlib.contextmanager
def bar(total: int) -> Generator[Callable[[int, str], None]]:
    """A function that shows how many are done: a bar on a terminal, else nothing but what is said at the end."""
    columns = (
        TextColumn(" "),
        BarColumn(40),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}  {task.fields[rate]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        row = shown.add_task("", total=total, rate="")

        def show(done: int, rate: str) -> None:
            shown.update(row, completed=done, rate=rate)

        yield show


async def burst(demo: Demo) -> None:
    count = max(int(BURST * demo.seconds), 100)
    heading(f"1. A burst: {count:,} jobs at once")
    await demo.clear("burst")
    begun = time.monotonic()
    await app.aenqueue_many([ping.call(n) for n in range(count)])
    took = time.monotonic() - begun
    say(f"{count:,} jobs were enqueued in {took:.1f} s, in one transaction: {count / took:,.0f} jobs/s")
    begun, left = time.monotonic(), count
    with bar(count) as show:
        while left:
            await asyncio.sleep(0.1)
            left = await app.acount_jobs(queue="burst", state=LIVE)
            show(count - left, f"{(count - left) / (time.monotonic() - begun):,.0f} jobs/s")
    took = time.monotonic() - begun
    say(f"two workers finished them in {took:.1f} s: {count / took:,.0f} jobs/s", "green")


def in_order(steps: Sequence[StepInfo]) -> list[StepInfo]:
    """The failed tries of a step, which are saved together with it, before the step itself."""
    places = {step.key: place for place, step in enumerate(steps)}

    def by_step(step: StepInfo) -> tuple[int, bool]:
        return places.get(step.key.partition("~")[0], places[step.key]), step.kind != "retry"

    return sorted(steps, key=by_step)


async def durable(demo: Demo) -> None:
    heading("2. A durable checkout: a step that is saved never runs again")
    order = f"order-{int(time.time()) % 10000}"
    job = await checkout.aenqueue(order)
    async for change in job.changes(timeout="60s"):
        for step in in_order(change.steps):
            if step.kind == "retry":
                say(f"✗ {step.key.partition('~')[0]}: {step.error}; the step is tried again", "yellow")
            elif not step.pending and step.kind == "wait":
                say("✓ picked up: the event came, and the job goes on where it stopped", "green")
            elif not step.pending:
                say(f"✓ {step.key}: {step.value}", "green")
        if change.state == "waiting" and any(step.pending and step.event for step in change.steps):
            say("… waits for 'picked up', up to 7 days: it takes no slot, and no process")
            await demo.pause()
            await app.aemit("picked up", key=order)
        if change.ended:
            say(f"the checkout {change.state}: {change.result}", "green")


async def killed(demo: Demo) -> None:
    count = max(int(PARCELS * demo.seconds), 60)
    heading(f"3. A crash: {count:,} parcels, two workers, and one of them is killed")
    await demo.clear("parcels")
    await demo.connection.execute("create table if not exists demo_delivery (run bigint, parcel int, worker int)")
    run = time.time_ns()
    await app.aenqueue_many([deliver.call(run, n) for n in range(count)])
    victim, other = demo.workers
    delivered: Any = "select count(*) from demo_delivery where run = %s"
    held: Any = (
        "select count(*) from stepwell.jobs j join stepwell.workers w on w.id = j.worker_id"
        " where j.state = 'running' and w.pid = %s"
    )
    with bar(count) as show:
        while await app.acount_jobs(queue="parcels", state=LIVE):
            await asyncio.sleep(0.1)
            done = await demo.one(delivered, run)
            show(done, "delivered")
            if victim.poll() is None and done > count / 5 and await demo.one(held, victim.pid):
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                # Counted only now: up to its end it claimed jobs and finished others.
                say(f"kill -9 {victim.pid}: this worker held {await demo.one(held, victim.pid)} jobs", "red")
                say(f"worker {other.pid} takes them over when the lease of the dead one ends")
    once: Any = "select count(distinct parcel) from demo_delivery where run = %s"
    rows, parcels = await demo.one(delivered, run), await demo.one(once, run)
    again: Any = (
        "select count(distinct f.job_id) from stepwell.failures f join stepwell.jobs j on j.id = f.job_id"
        " where j.task = 'deliver' and (j.args ->> 'run')::bigint = %s"
    )
    say(f"{await demo.one(again, run)} jobs of the dead worker were rescued, and ran again")
    say(f"{count} parcels: {parcels} delivered, {count - parcels} lost, {rows - parcels} delivered twice", "bold green")


@contextlib.asynccontextmanager
async def processes(web: int | None) -> AsyncGenerator[list[subprocess.Popen[bytes]]]:
    """Two workers, and the dashboard on this port."""
    command = [sys.executable, "-m", "stepwell"]
    worker = [*command, "worker", "demo:app", "--concurrency", "16", "--log-level", "error"]
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        place, environment = Path(__file__).parent, {**os.environ, "STEPWELL_DEMO_DATABASE": app.dsn}
        # In a session of their own, so that Ctrl-C reaches only the demo, which ends them in order.
        started.append(subprocess.Popen(argv, cwd=place, env=environment, start_new_session=True))

    try:
        for _ in range(2):
            # The lease is short, so that the viewer need not wait for the rescue.
            start(*worker, "--lease", "3s", "--renew", "1s")
        if web is not None:
            start(*command, "web", "demo:app", "--port", str(web), "--log-level", "warning")
            await answers(f"http://127.0.0.1:{web}/", started[-1])
        yield started[:2]
    finally:
        for process in started:
            process.terminate()
        for process in started:
            await asyncio.to_thread(process.wait)


async def answers(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the dashboard answers."""

    def fetch() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        return False

    while not await asyncio.to_thread(fetch):
        if process.poll() is not None:
            raise SystemExit("the dashboard did not start: give another port, make demo WEB=1 PORT=9000")
        await asyncio.sleep(0.1)
    console.print(Text(f"The dashboard is at {url}", "bold"))


async def tell(demo: Demo) -> None:
    errors: Sequence[Exception] = ()
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(demo.watch())
            for story in (burst, durable, killed):
                await story(demo)
                await demo.pause()
            watching.cancel()
    except ExceptionGroup as group:
        errors = group.exceptions
    if any(isinstance(error, WorkersGone) for error in errors):
        raise SystemExit("both workers of the demo have ended, and nobody runs its jobs: start it again")
    if errors:
        raise errors[0]


async def show(seconds: float, web: int | None) -> None:
    begun = time.monotonic()
    async with app, processes(web) as workers:
        async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True) as connection:
            demo = Demo(workers, connection, seconds)
            ready: Any = "select count(*) from stepwell.workers where alive and pid = any (%s)"
            while await demo.one(ready, [worker.pid for worker in workers]) < 2:
                if any(worker.poll() is not None for worker in workers):
                    raise SystemExit("a worker of the demo did not start")
                await asyncio.sleep(0.05)
            if seconds:
                await tell(demo)
        if seconds:
            heading(f"That was Stepwell, in {time.monotonic() - begun:.0f} s: Postgres, and nothing else.")
        if web is None:
            say("see it all in the dashboard:  make demo WEB=1")
            say("or look at these jobs:        .venv/bin/stepwell web examples.demo:app")
            say("or in the terminal:           .venv/bin/stepwell --database embedded top")
            return
        say(f"look around at http://127.0.0.1:{web}/, and end it with Ctrl-C")
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="about how long; 0: tell no story")
    parser.add_argument("--web", type=int, metavar="PORT", help="serve the dashboard on this port, until Ctrl-C")
    given = parser.parse_args()
    if given.web is not None:
        with socket.socket() as port:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                port.bind(("127.0.0.1", given.web))
            except OSError as error:
                raise SystemExit(f"port {given.web} is taken ({error.strerror}): make demo WEB=1 PORT=9000") from None
    # A SIGTERM ends the workers and the dashboard as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.print("Starting Postgres and two workers ...")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(show(given.seconds, given.web))


if __name__ == "__main__":
    main()
