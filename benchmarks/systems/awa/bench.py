"""Awa, whose runtime is Rust and calls the handlers on the Python loop that started it.

Bulk enqueue is `enqueue_many_copy`, its documented way for many jobs. One queue with its defaults, one claimer and
batches of 512, which its guide advises before more claimers; 20 connections, and a poll each 50 ms besides NOTIFY, as
in its own benchmark. On asyncio's own loop: with uvloop it was slower to wake. It closes jobs after their handlers, in
batches.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from functools import cache

import awa
from program import DSN, aping_each, main, open_tally

# Its driver takes no user before an empty host.
_USER, _, _REST = DSN.removeprefix("postgresql://").partition("@/")
_URL = f"postgresql:///{_REST}&user={_USER}" if _REST else DSN

# Jobs not claimed, claims not closed, and jobs that wait for a retry. What is subtracted is dropped in one go with what
# it is subtracted from, so the difference holds. Its own `queue_stats` took seconds here, on tables just filled.
_LEFT = """
    select (
        (select count(*) from awa.ready_entries)
        - (select coalesce(sum(claimed_count), 0) from awa.ready_claim_attempt_batches)
        + (select count(*) from awa.lease_claims)
        + (select coalesce(sum(claimed_count), 0) from awa.lease_claim_batches)
        - (select count(*) from awa.lease_claim_closures)
        - (select coalesce(sum(closed_count), 0) from awa.lease_claim_closure_batches)
        + (select count(*) from awa.leases)
        + (select count(*) from awa.deferred_jobs)
    )::bigint as jobs
"""


@dataclass
class Noop:
    """Nothing."""


@dataclass
class Answer:
    """Say how long it took to get here."""

    sent: int


def install() -> None:
    """Make the schema, and start a worker once: the first one switches a new database to its current storage."""
    asyncio.run(_install())


async def _install() -> None:
    async with awa.AsyncClient(_URL) as client:
        await client.migrate()
        await _start(client, 1)
        await client.shutdown()


def fill(jobs: int) -> None:
    """Enqueue no-ops in one call."""
    with awa.Client(_URL) as client:
        client.enqueue_many_copy([Noop()] * jobs)


def work(concurrency: int) -> None:
    """Run its worker until SIGTERM, as its documentation shows: it has no command for that."""
    asyncio.run(_work(concurrency))


async def _work(concurrency: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with awa.AsyncClient(_URL, max_connections=20) as client:
        await _start(client, concurrency)
        await stop.wait()
        await client.shutdown()


async def _start(client: awa.AsyncClient, concurrency: int) -> None:
    tally = open_tally()

    @client.task(Noop)
    async def noop(_job: awa.Job[Noop]) -> None:
        tally.hit()

    @client.task(Answer)
    async def answer(job: awa.Job[Answer]) -> None:
        tally.hit_after(job.args.sent)

    await client.start([("default", concurrency)], poll_interval_ms=50)


def ping(jobs: int) -> None:
    """One job at a time."""

    async def each() -> None:
        async with awa.AsyncClient(_URL) as client:
            await aping_each(jobs, lambda sent: client.insert(Answer(sent)))

    asyncio.run(each())


@cache
def _client() -> awa.Client:
    return awa.Client(_URL)


def left() -> int:
    """Jobs that are ready, claimed or deferred."""
    with _client().transaction() as transaction:
        return int(transaction.fetch_one(_LEFT)["jobs"])


main(install=install, fill=fill, work=work, ping=ping, left=left)
