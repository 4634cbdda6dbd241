"""Large values: what the database refuses, and what a worker holds."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from waiting import Heard

from stepwell import App, Context, JobFailed, TooLarge, Worker
from stepwell.postgres.migrate import migrate
from stepwell.telemetry.jobs import AttemptFailed
from stepwell.telemetry.worker import LoopFailed

MIB = 1024 * 1024


async def test_args_that_the_app_allows_and_the_database_does_not_are_refused_with_the_command(dsn: str) -> None:
    async with App(dsn, max_args_size=5 * MIB) as app:

        @app.task
        async def work(x: str) -> int:
            return len(x)

        small, large = work.aenqueue(x=""), work.aenqueue(x="x" * 2 * MIB)
        found = await asyncio.gather(small, large, return_exceptions=True)
        assert isinstance(found[1], TooLarge)
        assert 'run "stepwell sizes set args 3MB"' in str(found[1])
        async with Worker(app):
            # The one beside it went in.
            assert not isinstance(found[0], BaseException)
            assert await found[0].aresult(20) == 0


async def test_a_result_that_the_database_refuses_fails_its_job_for_good(dsn: str) -> None:
    async with App(dsn, max_result_size=5 * MIB) as app:

        @app.task
        async def work() -> str:
            return "x" * 2 * MIB

        async with Worker(app):
            job = await work.aenqueue()
            with pytest.raises(JobFailed, match='run "stepwell sizes set result 3MB"'):
                await job.aresult(20)


@pytest.mark.parametrize("transaction", [False, True])
async def test_a_result_that_the_database_refuses_is_said_as_any_other_failure(dsn: str, transaction: bool) -> None:
    async with App(dsn, max_result_size=5 * MIB) as app:

        @app.task(transaction=transaction)
        async def work(ctx: Context) -> str:
            return "x" * 2 * MIB

        worker = Worker(app)
        heard = Heard(worker)
        async with worker:
            job = await work.aenqueue()
            with pytest.raises(JobFailed) as failed:
                await job.aresult(20)
        [said] = heard.of(AttemptFailed)
        assert (said.type, said.message, said.delay) == (failed.value.type, failed.value.message, None)
        assert said.type == "TooLarge"
        assert said.message.startswith("task 'work': result of 2097154 bytes, and this database accepts 1048576: ")
        assert "CONTEXT" not in said.message
        assert "\n" not in said.message


async def test_a_result_that_the_app_refuses_says_what_to_do(dsn: str) -> None:
    async with App(dsn, max_result_size=10) as app:

        @app.task
        async def work() -> str:
            return "x" * 20

        async with Worker(app):
            job = await work.aenqueue()
            with pytest.raises(JobFailed, match=r"App\(max_result_size=\.\.\.\): store the data .*, or raise that"):
                await job.aresult(20)


async def test_a_step_that_the_database_refuses_fails_its_job_for_good(dsn: str) -> None:
    async with App(dsn, max_result_size=5 * MIB) as app:

        async def make() -> str:
            return "x" * 2 * MIB

        @app.task
        async def work(ctx: Context) -> int:
            return len(await ctx.step(make))

        async with Worker(app):
            job = await work.aenqueue()
            with pytest.raises(JobFailed, match=r"step 'make' has a value of .* \"stepwell sizes set step 3MB\""):
                await job.aresult(20)
        info = await job.ainfo()
        assert info is not None
        assert info.attempt == 1


async def test_a_transaction_or_child_that_the_database_refuses_fails_its_job_for_good(dsn: str) -> None:
    async with App(dsn, max_result_size=5 * MIB, max_args_size=5 * MIB) as app:

        @app.task
        async def child(x: str) -> None: ...

        @app.task
        async def spawns(ctx: Context) -> None:
            await ctx.spawn(child, "x" * 2 * MIB)

        @app.task
        async def saves(ctx: Context) -> None:
            async with ctx.transaction("noted") as tx:
                tx.save("x" * 2 * MIB)

        async with Worker(app):
            for task, said in ((spawns, "child 'child': args of .* set args 3MB"), (saves, "step 'noted' .* step 3MB")):
                job = await task.aenqueue()
                with pytest.raises(JobFailed, match=said):
                    await job.aresult(20)


async def test_a_limit_is_advised_that_is_not_far_from_what_is_needed(app: App) -> None:
    with psycopg.connect(app.dsn, autocommit=True) as owner:
        owner.execute("select stepwell.set_size_limit('event', 65536)")
    with pytest.raises(TooLarge, match='run "stepwell sizes set event 128kB"'):
        await app.aemit("shipped", value="x" * 100_000)


async def test_an_event_that_the_database_refuses_names_the_command(app: App) -> None:
    with pytest.raises(TooLarge, match='run "stepwell sizes set event 3MB"'):
        await app.aemit("shipped", value="x" * 2 * MIB)
    with psycopg.connect(app.dsn, autocommit=True) as owner:
        owner.execute("select stepwell.set_size_limit('event', 3 * 1024 * 1024)")
    await app.aemit("shipped", value="x" * 2 * MIB)


async def test_a_worker_holds_no_more_bytes_than_it_may(dsn: str) -> None:
    async with App(dsn) as app:
        held: list[int] = []
        go_on = asyncio.Event()

        @app.task
        async def work(x: str) -> int:
            held.append(look.execute("select count(*) from stepwell.job where state = 'running'").fetchall()[0][0])
            if len(held) == 6:
                go_on.set()
            await go_on.wait()
            return len(x)

        jobs = await work.aenqueue_many({"x": "x" * 200_000} for _ in range(20))
        with psycopg.connect(dsn, autocommit=True) as look:
            async with Worker(app, concurrency=20, max_held_size=MIB), asyncio.timeout(20):
                assert [await job.aresult() for job in jobs] == [200_000] * 20
        # The sixth is the one that reaches the bound. Of those that have ended some may not be written yet.
        assert max(held[:6]) == 6
        assert max(held) <= 12


async def test_a_pool_with_small_jobs_goes_on_while_another_holds_all_that_it_may(dsn: str) -> None:
    async with App(dsn) as app:
        stuck = asyncio.Event()

        @app.task(queue="large")
        async def large(x: str) -> None:
            del x
            await stuck.wait()

        @app.task(queue="small")
        async def small() -> None: ...

        await large.aenqueue_many({"x": "x" * (MIB - 100)} for _ in range(8))
        async with Worker(app, queues={"large": 8, "small": 2}, max_held_size=2 * MIB):
            async with asyncio.timeout(20):
                for _ in range(3):
                    await (await small.aenqueue()).aresult()
            stuck.set()


async def test_a_worker_with_the_smallest_bound_runs_jobs_one_by_one(dsn: str) -> None:
    async with App(dsn) as app:

        @app.task
        async def work(x: str) -> int:
            return len(x)

        async with Worker(app, max_held_size=1), asyncio.timeout(20):
            jobs = await work.aenqueue_many({"x": "x" * 100_000} for _ in range(5))
            assert [await job.aresult() for job in jobs] == [100_000] * 5


async def test_a_job_that_is_too_large_to_be_handed_to_a_worker_fails_and_the_others_run(dsn: str) -> None:
    async with App(dsn) as app:

        @app.task
        async def work(x: str) -> int:
            return len(x)

        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("update stepwell.size_limit set bytes = 65536 where name = 'job'")
            # By the owner, or from before there were limits.
            owner.execute(
                "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
                " select stepwell.uuid7(), now(), now(), 'ready', 'work', 'default',"
                " ('{\"x\": \"' || repeat('x', 3000000) || '\"}')::json"
            )
        good = await work.aenqueue_many({"x": "x"} for _ in range(5))
        worker = Worker(app)
        heard = Heard(worker)
        async with worker, asyncio.timeout(30):
            assert [await job.aresult() for job in good] == [1] * 5
            failed = await heard.wait_for(AttemptFailed)
            assert (failed.reason, failed.attempt) == ("unreadable", 1)
            assert "have 3000009 bytes" in failed.message
            assert f'"stepwell sizes set job 3MB", and then "stepwell jobs retry {failed.job_id}"' in failed.message
            with pytest.raises(JobFailed, match="more than a worker may claim"):
                await app.job(failed.job_id).aresult()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        # Postgres refuses to send it, and the claim is rolled back.
        ({"client_encoding": "UTF8"}, "psycopg.errors.UntranslatableCharacter"),
        # Postgres sends it, and the claim is made; but Python does not understand the answer.
        ({}, "UnicodeDecodeError"),
    ],
)
async def test_a_job_that_cannot_be_read_fails_and_the_others_run(
    server_dsn: str, options: dict[str, str], error: str
) -> None:
    # 0x81 is no character of this encoding, but Postgres takes it from who speaks the same: nobody else can read it.
    name = f"win{uuid4().hex[:12]}"
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(f"create database {name} encoding 'WIN1252' locale 'C' template template0".encode())
        try:
            dsn = make_conninfo(server_dsn, dbname=name, **options)
            with psycopg.connect(dsn, autocommit=True) as owner:
                migrate(owner)
                owner.execute("select stepwell.enqueue('work', ('{\"x\": \"' || chr(129) || '\"}')::json)")
            async with App(dsn) as app:

                @app.task
                async def work(x: str) -> int:
                    return len(x)

                good = await work.aenqueue_many({"x": "é"} for _ in range(30))
                worker = Worker(app, concurrency=50)
                heard = Heard(worker)
                async with worker, asyncio.timeout(30):
                    assert [await job.aresult() for job in good] == [1] * 30
                    failed = await heard.wait_for(AttemptFailed)
                    assert (failed.reason, failed.type) == ("unreadable", error)
                    # And the queue goes on as before.
                    assert await (await work.aenqueue(x="xx")).aresult() == 2
                assert heard.of(LoopFailed) == []
        finally:
            server.execute(f"drop database {name} with (force)".encode())


async def test_a_loop_that_fails_says_so_and_goes_on(dsn: str) -> None:
    async with App(dsn) as app:

        @app.task
        async def work() -> int:
            return 1

        worker = Worker(app, poll=0.1)
        heard = Heard(worker)
        async with worker, asyncio.timeout(30):
            with psycopg.connect(dsn, autocommit=True) as owner:
                # A constraint that somebody has added: no claim can be written.
                owner.execute("alter table stepwell.job add constraint none_runs check (state <> 'running') not valid")
                job = await work.aenqueue()
                failed = await heard.wait_for(LoopFailed)
                assert failed.loop == "claiming jobs"
                assert "none_runs" in failed.error
                owner.execute("alter table stepwell.job drop constraint none_runs")
            assert await job.aresult() == 1
