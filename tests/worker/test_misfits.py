"""Jobs that were made for other code than a worker has, as in a rolling deploy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from process_tasks import register
from waiting import Heard, auntil

from stepwell import App, Context, Done, JobFailed, Next, Worker
from stepwell.jobs.handle import JobHandle
from stepwell.telemetry.jobs import AttemptFailed, JobMisfit
from stepwell.testing import Clock
from stepwell.values.job import JobInfo


async def look(job: JobHandle[Any]) -> JobInfo:
    info = await job.ainfo()
    assert info is not None
    return info


async def until_held(job: JobHandle[Any], epoch: int = 0) -> JobInfo:
    """The job, when it waits for a worker that it fits after a run that is no earlier than this."""

    async def held() -> bool:
        info = await look(job)
        return info.misfit_until is not None and info.epoch >= epoch

    await auntil(held)
    return await look(job)


def with_task(dsn: str, fn: Callable[..., Any], **options: Any) -> App:
    app = App(dsn, **options)
    app.task(name="greet")(fn)
    return app


async def one(name: str) -> str:
    return f"one {name}"


async def two(name: str, title: str) -> str:
    return f"two {title} {name}"


async def three(name: str, title: str, polite: bool) -> str:
    return f"three {title} {name} {polite}"


async def test_a_job_of_new_code_waits_for_a_worker_of_new_code_and_no_attempt_is_used(dsn: str) -> None:
    async with with_task(dsn, one) as old, with_task(dsn, two) as new:
        worker = Worker(old)
        heard = Heard(worker)
        async with worker:
            job = await new.tasks["greet"].aenqueue("Ada", "Dr")
            said = await heard.wait_for(JobMisfit)
            assert "'title'" in said.text()
            info = await until_held(job)
            assert (info.state, info.attempt) == ("scheduled", 0)
            assert info.error is not None
            assert "it does not know 'title'" in info.error
            # The old worker goes on with what it knows.
            assert await (await old.tasks["greet"].aenqueue("Bob")).aresult(timeout="10s") == "one Bob"
            assert (await look(job)).epoch == 1
            async with Worker(new):
                assert await job.aresult(timeout="10s") == "two Dr Ada"
        info = await look(job)
        assert (info.attempt, info.failures, info.misfit_until) == (1, (), None)


async def test_a_job_of_old_code_is_run_by_a_worker_of_old_code(dsn: str) -> None:
    async with with_task(dsn, one) as old, with_task(dsn, two) as new, Worker(new):
        job = await old.tasks["greet"].aenqueue("Ada")
        info = await until_held(job)
        assert info.error is not None
        assert "it needs 'title'" in info.error
        async with Worker(old):
            assert await job.aresult(timeout="10s") == "one Ada"


async def test_each_signature_is_tried_once_and_then_the_right_one(dsn: str, conn: psycopg.Connection[Any]) -> None:
    async with with_task(dsn, one) as old, with_task(dsn, two) as new, with_task(dsn, three) as newest:
        async with Worker(old), Worker(new), Worker(new):
            job = await newest.tasks["greet"].aenqueue("Ada", "Dr", True)

            def refused() -> list[int] | None:
                row = conn.execute("select misfits from stepwell.job where state = 'scheduled'").fetchone()
                return row[0] if row is not None and row[0] is not None and len(row[0]) == 2 else None

            signatures = await auntil(refused)
            assert signatures == sorted(app.tasks["greet"].signature for app in (old, new))
            assert (await look(job)).epoch == 2
            async with Worker(newest):
                assert await job.aresult(timeout="10s") == "three Dr Ada True"
        assert (await look(job)).epoch == 3


async def test_a_job_that_no_worker_takes_fails_when_its_time_is_over(dsn: str) -> None:
    async with with_task(dsn, one, misfit_grace="1h") as old, with_task(dsn, two) as new, Clock(old) as clock:
        worker = Worker(old)
        heard = Heard(worker)
        async with worker:
            job = await new.tasks["greet"].aenqueue("Ada", "Dr")
            info = await until_held(job)
            assert info.misfit_until is not None
            assert (info.misfit_until - info.enqueued_at).total_seconds() == pytest.approx(3600, abs=60)
            await clock.advance("59m")
            assert (await look(job)).state == "scheduled"
            await clock.advance("2m")
            with pytest.raises(JobFailed, match="it does not know 'title'"):
                await job.aresult(timeout="10s")
            info = await look(job)
            assert (info.state, info.attempt) == ("failed", 1)
            assert [failure.reason for failure in info.failures] == ["bad_args"]
            await auntil(lambda: len(heard.of(AttemptFailed)) == 1)
            # It was tried when the time was over: it can be tried again, with as much time.
            assert await job.aretry()
            await until_held(job)


async def test_without_a_grace_it_fails_at_once(dsn: str) -> None:
    async with with_task(dsn, one, misfit_grace=0) as old, with_task(dsn, two) as new, Worker(old):
        job = await new.tasks["greet"].aenqueue("Ada", "Dr")
        with pytest.raises(JobFailed, match="do not fit"):
            await job.aresult(timeout="10s")
        info = await look(job)
        assert (info.attempt, info.failures[0].reason) == (1, "bad_args")


async def test_a_value_of_the_wrong_type_still_fails_at_once(dsn: str) -> None:
    async def typed(name: int) -> None: ...

    async with with_task(dsn, one) as old, with_task(dsn, typed) as new, Worker(new):
        job = await old.tasks["greet"].aenqueue("Ada")
        with pytest.raises(JobFailed, match="Expected `int`"):
            await job.aresult(timeout="10s")
        assert (await look(job)).failures[0].reason == "bad_args"


async def test_a_worker_of_another_queue_or_app_does_not_release_it(dsn: str, conn: psycopg.Connection[Any]) -> None:
    async with (
        with_task(dsn, one, name="shop") as old,
        with_task(dsn, two, name="shop") as new,
        with_task(dsn, two, name="billing") as other,
        Worker(old),
    ):
        job = await new.tasks["greet"].aenqueue("Ada", "Dr")
        await until_held(job)
        async with Worker(new, queues=["elsewhere"]), Worker(other):
            row = conn.execute("select promoted from stepwell.promote()").fetchone()
            assert row == (0,)
            assert (await look(job)).state == "scheduled"
            async with Worker(new, queues=["def*"]):
                assert await job.aresult(timeout="10s") == "two Dr Ada"


async def test_a_held_job_can_be_retried_and_cancelled(dsn: str) -> None:
    async with with_task(dsn, one) as old, with_task(dsn, two) as new, Worker(old):
        job = await new.tasks["greet"].aenqueue("Ada", "Dr")
        first = await until_held(job)
        assert await job.aretry()

        again = await until_held(job, epoch=2)
        # The time is not begun anew.
        assert again.misfit_until == first.misfit_until
        assert await job.acancel()
        info = await look(job)
        assert (info.state, info.error) == ("cancelled", None)


async def test_a_run_that_began_ends_the_time(dsn: str) -> None:
    starts = 0

    async def waits(ctx: Context, name: str, title: str) -> str:
        nonlocal starts
        starts += 1
        await ctx.sleep("2h")
        return f"{title} {name}"

    async with with_task(dsn, one) as old, with_task(dsn, waits) as new, Clock(old) as clock, Worker(old):
        job = await new.tasks["greet"].aenqueue("Ada", "Dr")
        await until_held(job)
        async with Worker(new):
            await auntil(lambda: starts == 1)

            async def sleeps() -> bool:
                return (await look(job)).state == "waiting"

            await auntil(sleeps)
        await clock.advance("3h")
        # Only the old worker is left. It does not fail the job for the hour that was over long ago.
        info = await until_held(job)
        assert info.failures == ()
        async with Worker(new):
            assert await job.aresult(timeout="10s") == "Dr Ada"


async def test_a_run_of_a_schedule_that_waits_for_its_code_is_live(dsn: str, conn: psycopg.Connection[Any]) -> None:
    new = App(dsn, name="shop")

    @new.schedule("0 0 1 1 *", args={"name": "Ada", "title": "Dr"}, overlap="queue")
    @new.task
    async def greet(name: str, title: str) -> str:
        return f"two {title} {name}"

    async with with_task(dsn, one, name="shop", stale_schedules="keep") as old, new:
        await new.scheduler.put_declared(new.database)
        async with Worker(old):
            job = await new.schedule_named("greet").atrigger()
            await until_held(job)
            assert conn.execute("select stepwell.admit(null)").fetchone() == (0,)
            [info] = [each for each in await new.aschedules() if each.name == "greet"]
            assert info.live == 1
        async with Worker(new):
            assert await job.aresult(timeout="10s") == "two Dr Ada"


async def test_a_chain_waits_for_a_worker_that_knows_its_step(dsn: str) -> None:
    def first(n: int) -> Next[int]:
        return Next(n + 1, after="1h")

    def extra(n: int) -> int:
        return n * 10

    def last(n: int) -> int:
        return n

    old, new = App(dsn), App(dsn)
    old.chain("sums", first, last)
    sums = new.chain("sums", first, extra, last)
    async with old, new, Clock(old) as clock:
        async with Worker(new):
            job = await sums.aenqueue(1)

            async def sleeps() -> bool:
                return (await look(job)).state == "waiting"

            await auntil(sleeps)
        async with Worker(old):
            await clock.advance("1h")
            info = await until_held(job)
            assert info.error is not None
            assert "no step 'extra'" in info.error
            async with Worker(new):
                assert await job.aresult(timeout="10s") == 20


async def test_a_machine_waits_for_a_worker_that_knows_its_state_and_fields(dsn: str) -> None:
    old, new = App(dsn), App(dsn)

    def add(app: App, state: type[Any]) -> Any:
        machine = app.machine("order")
        return machine, machine.state(start=True, name="Placed")(state)

    @dataclass
    class Placed:
        id: int

        async def run(self) -> Done[str]:
            return Done(f"old {self.id}")

    @dataclass
    class PlacedBy:
        id: int
        by: str

        async def run(self) -> Done[str]:
            return Done(f"new {self.id} {self.by}")

    old_machine, _ = add(old, Placed)
    new_machine, _ = add(new, PlacedBy)

    @new_machine.state(start=True)
    @dataclass
    class Gift:
        id: int

        async def run(self) -> Done[str]:
            return Done(f"gift {self.id}")

    async with old, new:
        async with Worker(new):
            job = await old_machine.aenqueue(Placed(1))
            info = await until_held(job)
            assert info.error is not None
            assert "it needs 'by'" in info.error
            async with Worker(old):
                assert await job.aresult(timeout="10s") == "old 1"
        async with Worker(old):
            gift = await new_machine.aenqueue(Gift(2))
            await until_held(gift)
            async with Worker(new):
                assert await gift.aresult(timeout="10s") == "gift 2"


@pytest.mark.slow
async def test_plain_functions_in_threads_processes_and_transactions_wait_too(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    register(app)

    @app.task
    def plain(n: int) -> None: ...

    @app.task(transaction=True)
    async def writes(ctx: Context, n: int) -> None: ...

    @app.task(transaction=True)
    def writes_plainly(ctx: Context, n: int) -> None: ...

    async with Worker(app):
        for task in ("plain", "square", "writes", "writes_plainly"):
            row = conn.execute('select stepwell.enqueue(%s, \'{"n": 1, "m": 2}\')::text', (task,)).fetchone()
            assert row is not None
            job: JobHandle[Any] = app.job(row[0])
            info = await until_held(job)
            assert (info.attempt, info.failures) == (0, ())


async def test_a_cancel_that_comes_while_the_args_are_looked_at_is_not_lost(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with with_task(dsn, two) as new:
        job = await new.tasks["greet"].aenqueue("Ada", "Dr")
        worker = conn.execute("select stepwell.register_worker('h', 1, '0', '{default}', '{}', 1, 60)").fetchone()
        assert worker is not None
        conn.execute(
            "select from stepwell.claim(%s, '{default}', '{null}', '{null}', '{null}', '{greet}', 1)", (worker[0],)
        )
        await job.acancel()
        held_back = "select refused, expired from stepwell.hold_misfits(%s, %s, '{7}', '{it does not fit}', '{60}')"
        assert conn.execute(held_back, ([job.id], [2])).fetchone() == ([job.id], [])
        assert conn.execute(held_back, ([job.id], [1])).fetchone() == ([], [])
        assert (await look(job)).state == "cancelled"
