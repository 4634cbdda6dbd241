"""A live demo of Stepwell: `make demo`.

It starts an embedded Postgres, a worker process and a stream of sample jobs, and shows their progress. It ends by
itself, or on Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stepwell import App, Context, Retry

# The worker process reads the URL of the database from the environment.
app = App(os.environ.get("STEPWELL_DEMO_DATABASE", "embedded"))


@app.task(queue="mail")
async def send_mail(to: str) -> str:
    await asyncio.sleep(random.uniform(0.002, 0.02))
    return f"sent to {to}"


@app.task
def resize(width: int) -> tuple[int, int]:
    """A plain function runs in a thread."""
    time.sleep(random.uniform(0.005, 0.03))
    return width, width * 3 // 4


@app.task(retry=Retry(max_attempts=3, initial="300ms"))
async def call_partner(n: int) -> int:
    """One call in eight fails. Most of them succeed when they are retried."""
    await asyncio.sleep(0.005)
    if random.random() < 0.125:
        raise ConnectionError(random.choice(["connection reset by peer", "partner is closed for lunch", "timed out"]))
    return n


@app.task(timeout="10s")
async def report(ctx: Context, pages: int) -> int:
    for page in range(pages):
        ctx.progress(page, pages)
        await asyncio.sleep(0.2)
    return pages


@dataclass
class Seen:
    """The figures on the screen."""

    states: dict[str, int] = field(default_factory=dict[str, int])
    rates: deque[float] = field(default_factory=lambda: deque[float](maxlen=60))
    latency: tuple[float, float] | None = None
    failures: list[tuple[str, str, int, str]] = field(default_factory=list[tuple[str, str, int, str]])
    done: int = 0


async def produce(until: float) -> int:
    """Enqueue a mix of plain, delayed and urgent jobs."""
    put = 0
    while time.monotonic() < until:
        calls: list[Any] = [
            send_mail.call(f"user{random.randrange(1000)}@example.org") for _ in range(random.randrange(60))
        ]
        calls += [resize.call(640) for _ in range(random.randrange(12))]
        calls += [call_partner.call(n) for n in range(random.randrange(10))]
        if random.random() < 0.3:
            calls.append(report.using(priority=5).call(random.randint(3, 8)))
            calls.append(send_mail.using(delay="3s").call("later@example.org"))
        put += len(await app.aenqueue_many(calls))
        await asyncio.sleep(random.uniform(0.05, 0.3))
    return put


async def read_figures(connection: psycopg.AsyncConnection[Any], since: Any, seen: Seen, passed: float) -> None:
    """Read the figures from the public views."""
    rows = await (
        await connection.execute(
            "select state::text, count(*) from stepwell.jobs where enqueued_at >= %s group by state", (since,)
        )
    ).fetchall()
    seen.states = dict(rows)
    done = sum(seen.states.get(state, 0) for state in ("succeeded", "failed", "cancelled"))
    seen.rates.append((done - seen.done) / passed)
    seen.done = done
    row = await (
        await connection.execute(
            "select percentile_cont(array[0.5, 0.95]) within group "
            "(order by extract(epoch from claimed_at - greatest(enqueued_at, run_at)) * 1000) from stepwell.jobs "
            "where finished_at > clock_timestamp() - interval '2 seconds' and attempt = 1"
        )
    ).fetchone()
    seen.latency = (row[0][0], row[0][1]) if row and row[0] and row[0][0] is not None else None
    seen.failures = await (
        await connection.execute(
            "select to_char(f.failed_at, 'HH24:MI:SS'), j.task, f.attempt, f.type || ': ' || f.message "
            "from stepwell.failures f join stepwell.jobs j on j.id = f.job_id "
            "where f.failed_at >= %s order by f.failed_at desc limit 5",
            (since,),
        )
    ).fetchall()


def screen(seen: Seen, left: float) -> Group:
    colours = {"ready": "yellow", "running": "cyan", "scheduled": "blue", "succeeded": "green", "failed": "red"}
    states = Table(box=None, padding=(0, 2))
    for state in colours:
        states.add_column(state, justify="right", style=colours[state])
    states.add_row(*[f"{seen.states.get(state, 0):,}" for state in colours])
    most = max(seen.rates, default=0) or 1
    bars = "".join("▁▂▃▄▅▆▇█"[min(7, int(rate / most * 7.99))] for rate in seen.rates)
    latency = "" if seen.latency is None else f"   wait p50 {seen.latency[0]:.1f} ms, p95 {seen.latency[1]:.1f} ms"
    speed = Text.assemble((f"{_mean(seen.rates):,.0f} jobs/s", "bold"), latency, "\n", (bars, "green"))
    failures = Table(box=None, padding=(0, 2), show_header=False)
    for at, task, attempt, error in seen.failures:
        failures.add_row(at, task, f"attempt {attempt}", Text(error, style="red"))
    return Group(
        Panel(states, title=f"Stepwell, {left:.0f} s left", title_align="left"),
        Panel(speed, title="finished", title_align="left"),
        Panel(failures, title="recent failures, most of them retried", title_align="left"),
    )


def _mean(rates: deque[float]) -> float:
    recent = list(rates)[-8:]
    return sum(recent) / len(recent) if recent else 0.0


async def show(console: Console, seconds: float) -> None:
    async with app:
        worker = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "stepwell", "worker", "demo:app", "--concurrency", "20", "--log-level", "error"],
            cwd=Path(__file__).parent,
            env={**os.environ, "STEPWELL_DEMO_DATABASE": app.dsn},
        )
        seen = Seen()
        producing: asyncio.Task[int] | None = None
        try:
            async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True) as connection:
                row = await (await connection.execute("select clock_timestamp()")).fetchone()
                since = row[0] if row else None
                # The time begins with the first result: until then the worker is starting.
                await (await send_mail.aenqueue("first@example.org")).aresult(timeout="60s")
                until = time.monotonic() + seconds
                producing = asyncio.create_task(produce(until))
                read_at = time.monotonic()
                with (
                    Live(console=console, auto_refresh=False)
                    if console.is_terminal
                    else contextlib.nullcontext() as live
                ):
                    while (now := time.monotonic()) < until + 3:
                        await asyncio.sleep(0.25 if live else 1.0)
                        await read_figures(connection, since, seen, time.monotonic() - read_at)
                        read_at = time.monotonic()
                        if live:
                            live.update(screen(seen, max(0, until - now)), refresh=True)
                        else:
                            console.print(f"{seen.states}  {_mean(seen.rates):,.0f} jobs/s")
                        if producing.done() and not set(seen.states) - {"succeeded", "failed", "cancelled"}:
                            break
            put = 1 + await producing
            console.print(
                f"\n{put:,} jobs were enqueued, {seen.done:,} have finished. List them with\n"
                "  .venv/bin/stepwell --database embedded jobs list"
            )
        finally:
            if producing is not None:
                producing.cancel()
            worker.terminate()
            await asyncio.to_thread(worker.wait)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    console = Console()
    console.print("Starting Postgres and a worker ...")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(show(console, parser.parse_args().seconds))


if __name__ == "__main__":
    main()
