"""What workers do for all: chores of the leader, and what each has to see to itself."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, Retry, Worker
from stepwell.telemetry.jobs import JobBroken, RescuedJobFailed
from stepwell.telemetry.worker import LeaderChanged


async def test_what_only_another_app_keeps_has_its_partitions_too(app: App, dsn: str) -> None:
    @app.task
    async def leading() -> None: ...

    other = App(dsn, name="other")

    @other.task(keep="45d")
    async def kept() -> None: ...

    leader = Worker(app)
    heard = Heard(leader)
    async with leader, other, await psycopg.AsyncConnection[Any].connect(dsn, autocommit=True) as connection:
        await heard.wait_for(LeaderChanged)
        async with Worker(other):
            name = (datetime.now(UTC) + timedelta(days=46)).strftime("stepwell.history_%Y%m%d")

            async def made() -> bool:
                row = await (await connection.execute("select to_regclass(%s) is not null", (name,))).fetchone()
                return row == (True,)

            await auntil(made)


async def test_a_job_that_cannot_be_made_ready_is_named_with_its_queue_and_attempt(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    job = await send.using(delay="1h").aenqueue(1)
    conn.execute("alter table stepwell.job add constraint never_ready check (queue <> 'mail' or state <> 'ready')")
    conn.execute("update stepwell.job set run_at = stepwell.now(), attempt = 2")
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        broken = await heard.wait_for(JobBroken)
    assert (broken.job_id, broken.task, broken.queue, broken.attempt) == (str(job.id), "send", "mail", 2)
    assert "never_ready" in broken.error


async def test_a_job_whose_last_attempt_a_dead_worker_took_is_named_in_the_log(
    app: App, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def fragile(n: int) -> None: ...

    last, again = [await fragile.using(max_attempts=most).aenqueue(1) for most in (1, 2)]
    conn.execute(
        "with dead as (select stepwell.register_worker('host', 7, '0', '{default}', '{}', 10, 60) as id)"
        " update stepwell.job set state = 'running', worker_id = dead.id, epoch = 1, attempt = 1 from dead"
    )
    conn.execute("update stepwell.worker set lease_until = 'epoch'")
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        failed = await heard.wait_for(RescuedJobFailed)
        assert await again.aresult("60s") is None
    assert (failed.job_id, failed.task, failed.queue, failed.attempt) == (str(last.id), "fragile", "default", 1)
    assert len(heard.of(RescuedJobFailed)) == 1
    [record] = [record for record in caplog.records if (record.name, record.levelno) == ("stepwell", logging.ERROR)]
    said = record.getMessage()
    assert said.startswith(f"fragile {last.id} has failed for good: worker ")
    assert "(pid 7 on host) died while it ran this job, and no attempt is left" in said
    assert record.__dict__["job_id"] == str(last.id)


async def test_a_clock_set_forward_past_the_leases_lets_no_job_run_twice(app: App, dsn: str) -> None:
    runs: list[int] = []
    go_on = asyncio.Event()

    @app.task(retry=Retry(max_attempts=1))
    async def held(n: int) -> None:
        runs.append(n)
        await go_on.wait()

    # All slots are full, so that no claim tells it that its lease has ended.
    async with Worker(app, concurrency=5, lease="6s", renew="1s"), Worker(app, concurrency=5, lease="6s", renew="1s"):
        handles = [await held.aenqueue(n) for n in range(10)]
        await auntil(lambda: len(runs) == 10)
        async with await psycopg.AsyncConnection[Any].connect(dsn) as connection:
            # In one transaction, so that somebody looks for the dead before anybody can renew.
            await connection.execute("insert into stepwell.clock (at) values (clock_timestamp() + interval '1 day')")
            row = await (await connection.execute("select stepwell.rescue()")).fetchone()
            assert row == ([],)
            await connection.commit()

            async def renewed() -> bool:
                found = await connection.execute("select bool_and(alive) from stepwell.workers")
                alive = await found.fetchone()
                await connection.commit()
                return alive == (True,)

            await auntil(renewed)
            row = await (await connection.execute("select stepwell.rescue()")).fetchone()
            assert row == ([],)
            await connection.commit()
        go_on.set()
        for handle in handles:
            await handle.aresult(timeout=20)
    assert sorted(runs) == list(range(10))


async def test_a_job_whose_transaction_committed_long_after_it_was_due_is_promoted(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def late() -> str:
        return "done"

    @app.task
    async def other() -> None: ...

    async with Worker(app):
        # Keeps the worker at promoting, by looks that go back for a minute only.
        for n in range(20):
            await other.using(delay=0.2 + n / 20).aenqueue()
        job = await late.using(delay="1h").aenqueue()
        conn.execute(
            "update stepwell.job set run_at = stepwell.now() - interval '1 hour' where id = %s::uuid", (str(job.id),)
        )
        conn.execute("select pg_notify('stepwell_due', '0')")
        assert await job.aresult(timeout="60s") == "done"
