"""Why a job does not run: one test for each cause, on the real thing."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from waiting import Heard, auntil

from stepwell import (
    App,
    Cause,
    ConfigError,
    Context,
    GroupSummary,
    JobExists,
    JobHandle,
    Limit,
    Next,
    Rate,
    Retry,
    Snooze,
    Why,
    Worker,
)
from stepwell.telemetry.worker import StopAsked


async def becomes(job: JobHandle[Any], cause: Cause) -> Why:
    """Why, once this is the cause."""
    seen: list[Why] = []

    async def found() -> bool:
        seen.append(await job.awhy())
        return seen[-1].cause == cause

    try:
        await auntil(found)
    except AssertionError:
        raise AssertionError(f"the cause is not {cause}, but {seen[-1]}") from None
    return seen[-1]


async def test_there_is_no_such_job(app: App) -> None:
    nothing = uuid4()
    why = await app.job(nothing).awhy()
    assert (why.cause, why.subject) == ("not_found", f"there is no job {nothing}")


async def test_it_has_ended(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError("boom")

    async with Worker(app):
        well, badly = await work.aenqueue(False), await work.aenqueue(True)
        why = await becomes(well, "ended")
        assert (why.subject, why.next_act) == ("it has succeeded", f"see its result: stepwell jobs show {well.id}")
        why = await becomes(badly, "ended")
        assert why.subject == "it has failed: ValueError: boom"
        assert why.next_act == f"run it again: stepwell jobs retry {badly.id}"
    gone = await work.using(delay="1h").aenqueue(False)
    await gone.acancel("not wanted")
    assert (await gone.awhy()).subject == "it was cancelled: not wanted"


async def test_it_runs_and_is_asked_to_stop(app: App, conn: psycopg.Connection[Any]) -> None:
    end = asyncio.Event()

    @app.task
    async def work() -> None:
        try:
            await end.wait()
        finally:
            await end.wait()

    async with Worker(app):
        job = await work.aenqueue()
        why = await becomes(job, "running")
        [row] = conn.execute("select id::text, host, pid from stepwell.workers").fetchall()
        assert why.subject == f"attempt 1 runs on worker {row[0]} ({row[1]}, pid {row[2]})"
        assert why.next_act == f"wait for it to end, or cancel it: stepwell jobs cancel {job.id}"
        await job.acancel()
        assert (await job.awhy()).subject.endswith(" and was asked to stop")
        end.set()


async def test_a_later_attempt_says_how_the_last_one_failed(app: App) -> None:
    end = asyncio.Event()

    @app.task(retry=Retry(initial=0))
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("boom")
        await end.wait()

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: _second(job))
        why = await job.awhy()
        assert (why.cause, why.subject.partition("; ")[2]) == ("running", "attempt 1 failed: ValueError: boom")
        end.set()


async def _second(job: JobHandle[Any]) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "running" and info.attempt == 2


async def test_its_worker_is_dead(app: App, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select stepwell.enqueue('work')")
    [(worker,)] = conn.execute(
        "select stepwell.register_worker('here', 7, '0', '{default}', '{\"work\": {}}', 5, 60)::text"
    ).fetchall()
    [(job,)] = conn.execute(
        "select id from stepwell.claim_jobs(%s::uuid, '{default}', '{null}', '{null}', '{null}', '{work}', 1)",
        (worker,),
    ).fetchall()
    conn.execute("update stepwell.worker set lease_until = stepwell.now()")
    why = await app.job(job).awhy()
    assert (why.cause, why.subject) == ("running", f"its worker {worker} is dead")
    assert "start one" in why.next_act


async def test_it_is_delayed(app: App) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.using(delay="1h").aenqueue()
    info = await job.ainfo()
    why = await job.awhy()
    assert info is not None
    assert why == Why("delay", "it is not due yet", f"wait, or run it now: stepwell jobs run {job.id}", info.run_at)


async def test_a_chain_waits_before_its_next_step(app: App) -> None:
    async def first() -> Next[int]:
        return Next(1, after="1h")

    async def second(n: int) -> int:
        return n

    chain = app.chain("flow", first, second)
    async with Worker(app):
        why = await becomes(await chain.aenqueue(), "delay")
        assert why.until is not None


async def test_it_waits_for_its_next_attempt(app: App) -> None:
    @app.task(retry=Retry(initial="1h"))
    async def work() -> None:
        raise ValueError("boom")

    async with Worker(app):
        job = await work.aenqueue()
        why = await becomes(job, "retry")
        assert why.subject == "attempt 1 failed: ValueError: boom"
        assert why.until is not None
        assert why.next_act == f"wait, or run it now: stepwell jobs run {job.id}"


async def test_it_is_snoozed(app: App) -> None:
    @app.task
    async def work() -> None:
        raise Snooze("1h")

    async with Worker(app):
        why = await becomes(await work.aenqueue(), "snooze")
        assert (why.subject, why.until is not None) == ("its handler asked to run later", True)


async def test_a_step_waits_for_its_next_attempt(app: App) -> None:
    def fails() -> None:
        raise ValueError("boom")

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.step(fails, key="charge", retry=Retry(initial="1h"))

    async with Worker(app):
        why = await becomes(await work.aenqueue(), "retry")
        assert "'charge'" in why.subject
        assert why.until is not None


@pytest.mark.parametrize(
    ("what", "subject", "act"),
    [
        ({"queue": "default"}, "the queue 'default' is paused", "resume it: stepwell resume default"),
        ({"task": "work"}, "the task 'work' is paused", "resume it: stepwell resume --task work"),
        ({"everything": True}, "everything is paused", "resume it: stepwell resume --all"),
    ],
)
async def test_it_is_paused(app: App, what: dict[str, Any], subject: str, act: str) -> None:
    @app.task
    async def work() -> None: ...

    await app.apause(**what)
    async with Worker(app):
        why = await (await work.aenqueue()).awhy()
    assert why == Why("paused", subject, act)


async def test_its_workers_are_paused(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    async with Worker(app):
        [(worker,)] = conn.execute("select id::text from stepwell.workers").fetchall()
        await app.apause(worker=worker)
        why = await (await work.aenqueue()).awhy()
        assert (why.cause, why.subject) == ("paused", f"every worker that may run it is paused, such as {worker}")
        assert why.next_act == f"resume it: stepwell resume --worker {worker}"


async def test_a_limit_is_full(app: App) -> None:
    end = asyncio.Event()

    @app.task(limit=Limit(1, key="tenant-{tenant}"))
    async def report(tenant: str) -> None:
        await end.wait()

    async with Worker(app):
        first = await report.aenqueue("acme")
        await becomes(first, "running")
        second, third = await report.aenqueue("acme"), await report.aenqueue("acme")
        why = await second.awhy()
        assert (why.cause, why.jobs) == ("limit", (first.id,))
        assert why.subject == f"the key 'tenant-acme' has a limit of 1; held by {first.id} (running)"
        assert why.next_act == (
            f"see why it has not ended: stepwell jobs why {first.id}; "
            "or raise the limit: stepwell limits set tenant-acme --most 2"
        )
        assert (await third.awhy()).subject.endswith("; 1 ahead in line")
        await app.aset_limit("tenant-acme", 0)
        end.set()
        await first.aresult(timeout="20s")
        why = await second.awhy()
        assert (why.cause, why.subject) == ("limit", "the key 'tenant-acme' has a limit of 0, set at run time")


async def test_a_limit_without_a_worker_that_admits(app: App) -> None:
    @app.task(limit=Limit(1, key="export"))
    async def export() -> None: ...

    first, second = await export.aenqueue(), await export.aenqueue()
    assert (await first.awhy()).cause == "no_worker"
    why = await second.awhy()
    assert (why.cause, why.subject) == ("limit", "the key 'export' has a limit of 1; 1 ahead in line")


async def test_many_hold_a_limit_and_three_are_named(app: App) -> None:
    end = asyncio.Event()

    @app.task(limit=Limit(5, key="k"))
    async def work() -> None:
        await end.wait()

    async with Worker(app):
        jobs = [await work.aenqueue() for _ in range(6)]
        for job in jobs[:5]:
            await becomes(job, "running")
        why = await jobs[5].awhy()
        assert len(why.jobs) == 3
        assert why.subject.endswith(" and 2 more")
        end.set()


async def test_a_rate_is_used_up(app: App) -> None:
    @app.task(rate=Rate(2, per="1h", burst=1, key="api"))
    async def call() -> None: ...

    async with Worker(app):
        first = await call.aenqueue()
        await first.aresult(timeout="20s")
        info = await first.ainfo()
        second, third = await call.aenqueue(), await call.aenqueue()
        why = await second.awhy()
        assert (why.cause, why.subject) == ("rate", "the key 'api' has a rate of 2 per hour")
        assert why.next_act == "wait, or raise the rate: stepwell limits set api --rate COUNT/s"
        assert info is not None
        assert info.claimed_at is not None
        assert why.until is not None
        assert (why.until - info.claimed_at).total_seconds() == pytest.approx(1800, abs=1)
        later = await third.awhy()
        assert later.subject == "the key 'api' has a rate of 2 per hour; 1 ahead in line"
        assert later.until is not None
        assert (later.until - info.claimed_at).total_seconds() == pytest.approx(3600, abs=1)


async def test_a_rate_is_closed(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(rate=Rate(5, key="api"))
    async def call() -> None: ...

    conn.execute(
        "insert into stepwell.bucket (key, used, used_at, closed_until)"
        " values ('api', 0, stepwell.now(), stepwell.now() + interval '1 hour')"
    )
    async with Worker(app):
        why = await (await call.aenqueue()).awhy()
        assert (why.cause, why.until is not None) == ("rate", True)
        assert why.subject == "the rate of the key 'api' is closed: a handler was told to slow down"
        opens = "wait until it opens, or set its rate, which opens it at once: stepwell limits set api --rate COUNT/s"
        assert why.next_act == opens


async def test_no_worker_is_alive_or_all_are_stopping(app: App) -> None:
    end = asyncio.Event()

    @app.task
    async def work() -> None:
        await end.wait()

    job = await work.aenqueue()
    why = await job.awhy()
    assert why == Why("no_worker", "no worker is alive", "start one: stepwell worker MODULE:APP")
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        await becomes(job, "running")
        await app.astop(everything=True)
        await heard.wait_for(StopAsked)
        why = await (await work.aenqueue()).awhy()
        assert (why.cause, why.subject) == ("no_worker", "every live worker that may run it is stopping")
        end.set()


async def test_no_worker_knows_the_task(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def work() -> None: ...

    [(job,)] = conn.execute("select stepwell.enqueue('nobody')::text").fetchall()
    async with Worker(app):
        why = await app.job(job).awhy()
        assert (why.cause, why.subject) == ("no_worker_for_task", "no live worker knows the task 'nobody'")
        for mistyped in ("wrok", "wor", "works", "woek", "Work", "wOrkk"):
            [(job,)] = conn.execute("select stepwell.enqueue(%s)::text", (mistyped,)).fetchall()
            why = await app.job(job).awhy()
            assert why.subject == f"no live worker knows the task '{mistyped}': did you mean 'work'?"
            assert why.next_act is not None
            assert why.next_act.startswith(
                f"if so, cancel it and enqueue that task: stepwell jobs cancel {job}; if not, start a worker"
            )


async def test_no_worker_serves_the_queue(app: App) -> None:
    @app.task
    async def work() -> None: ...

    async with Worker(app, queues=["default", "mail-*"]):
        why = await (await work.using(queue="mail").aenqueue()).awhy()
        assert (why.cause, why.subject) == (
            "no_worker_for_queue",
            "no live worker that knows its task claims from the queue 'mail'",
        )
        assert why.next_act == "start one: stepwell worker MODULE:APP --queue mail"
        job = await work.using(queue="defualt").aenqueue()
        why = await job.awhy()
        assert why.subject.endswith("claims from the queue 'defualt': did you mean 'default'?")
        assert why.next_act == (
            f"if so, move it there: stepwell jobs move {job.id} --to default; if not, start a worker for its queue: "
            "stepwell worker MODULE:APP --queue defualt"
        )
        # A pattern is no queue to move to.
        why = await (await work.using(queue="mial-*").aenqueue()).awhy()
        assert "did you mean" not in why.subject
        await becomes(await work.using(queue="mail-out").aenqueue(), "ended")


async def test_no_worker_belongs_to_the_app(dsn: str) -> None:
    shop, billing = App(dsn, name="shop"), App(dsn, name="billing")
    for app in (shop, billing):

        @app.task
        async def work() -> None: ...

    async with shop, billing, Worker(billing):
        why = await (await shop.tasks["work"].aenqueue()).awhy()
    assert (why.cause, why.subject) == ("no_worker_for_owner", "no live worker belongs to the app 'shop'")


async def test_its_args_fit_no_worker(dsn: str) -> None:
    old, new = App(dsn), App(dsn)

    @old.task(name="greet")
    async def one(name: str) -> None: ...

    @new.task(name="greet")
    async def two(name: str, title: str) -> None: ...

    async with old, new, Worker(old):
        job = await two.aenqueue("Ada", "Dr")
        why = await becomes(job, "misfit")
        assert "its args do not fit the code of the workers" in why.subject
        assert "it does not know 'title'" in why.subject
        assert why.until is not None
        assert f"stepwell jobs edit {job.id}" in why.next_act


async def test_all_slots_are_busy(app: App) -> None:
    end = asyncio.Event()

    @app.task
    async def work() -> None:
        await end.wait()

    async with Worker(app, concurrency=2):
        jobs = [await work.aenqueue() for _ in range(3)]
        # On a slow machine the worker may claim one ahead and hand it back, so any of them may be the one that waits.
        async with asyncio.timeout(20):
            while sorted(causes := {why.cause: why for why in [await job.awhy() for job in jobs]}) != [
                "busy",
                "running",
            ]:
                pass
        why = causes["busy"]
        assert why.subject == "all slots are busy: 2 in one worker"
        assert why.next_act == "wait for a job to end, or start more workers"
        end.set()


async def test_it_is_ready_and_a_worker_has_room(app: App, conn: psycopg.Connection[Any]) -> None:
    [(job,)] = conn.execute("select stepwell.enqueue('work')::text").fetchall()
    conn.execute("select stepwell.register_worker('here', 7, '0', '{default}', '{\"work\": {}}', 5, 60)")
    why = await app.job(job).awhy()
    assert (why.cause, why.subject) == ("ready", "it is ready, and a worker has room")


async def test_it_waits_for_an_event(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.wait_for("paid", key="order 7", timeout="1d")

    async with Worker(app):
        why = await becomes(await work.aenqueue(), "event")
        assert why.subject == "it waits for the event 'paid' with key 'order 7'"
        assert why.next_act == "emit it: stepwell emit paid --key 'order 7'"
        assert why.until is not None


async def test_it_waits_for_a_signal(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.receive("go")

    async with Worker(app):
        job = await work.aenqueue()
        why = await becomes(job, "signal")
        assert why == Why("signal", "it waits for the signal 'go'", f"send it: stepwell jobs send {job.id} go")


async def test_it_sleeps(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.sleep("1h")

    async with Worker(app):
        why = await becomes(await work.aenqueue(), "sleep")
        assert (why.subject, why.until is not None) == ("it sleeps", True)


async def test_it_waits_for_a_child(app: App) -> None:
    @app.task(queue="other")
    async def small() -> None: ...

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.gather(ctx.spawn(small), ctx.spawn(small))

    async with Worker(app, queues=["default"]):
        why = await becomes(await work.aenqueue(), "child")
        [*children] = await app.ajobs(task="small")
        assert set(why.jobs) == {child.id for child in children}
        assert why.subject == f"it waits for the end of its child {why.jobs[0]}, and for 1 more"
        assert why.next_act == f"see why the child has not ended: stepwell jobs why {why.jobs[0]}"


async def test_a_run_of_its_schedule_has_not_ended(app: App) -> None:
    end = asyncio.Event()

    @app.task
    async def clean() -> None:
        await end.wait()

    await app.aschedule_task(clean, "500ms", name="often", overlap="queue")
    async with Worker(app):
        [blocked, *_] = await auntil(lambda: app.ajobs(state="blocked"))
        [running] = await app.ajobs(state="running")
        why = await app.job(blocked).awhy()
        assert (why.cause, why.jobs) == ("overlap", (running.id,))
        assert why.subject == "a run before it of the schedule 'often' has not ended"
        assert why.next_act == f"see why that run has not ended: stepwell jobs why {running.id}"
        end.set()


async def test_a_result_that_does_not_come_says_why(app: App) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.using(queue="mail").aenqueue()
    with pytest.raises(TimeoutError) as late:
        await job.aresult(timeout="50ms")
    assert str(late.value) == (
        f"job {job.id} has not ended within 50ms: no worker is alive; start one: stepwell worker MODULE:APP"
    )


def test_sync_code_has_the_same(dsn: str) -> None:
    with App(dsn) as app:

        @app.task
        def work() -> None: ...

        job = work.enqueue()
        assert job.why().cause == "no_worker"
        with pytest.raises(TimeoutError, match="no worker is alive"):
            job.result(timeout="50ms")


def test_it_does_not_read_the_backlog(conn: psycopg.Connection[Any]) -> None:
    """The cost is the same in front of 30,000 jobs: ready, blocked and delayed."""
    limited = '{"admission": {"limits": [{"key": "k", "most": 1}]}}'

    def fill(count: int) -> list[str]:
        return [
            conn.execute(
                "select (stepwell.enqueue_many(array_fill('work'::text, array[%s]), array_fill('{}'::text, array[%s]),"
                " _delays => %s::double precision[], _policies => %s::text[]))[1]::text",
                (count, count, delays, policies),
            ).fetchall()[0][0]
            for delays, policies in ((None, None), (None, [limited]), ([3600.0], None))
        ]

    def blocks(job: str) -> int:
        # The least of some calls: others read the catalog again, because autovacuum has been at a table.
        found = list[int]()
        for _ in range(5):
            [(plan,)] = conn.execute(
                "explain (analyze, buffers, format json) select * from stepwell.why(%s::uuid)", (job,)
            ).fetchall()
            found.append(sum(int(plan[0]["Plan"][f"Shared {how} Blocks"]) for how in ("Hit", "Read")))
        return min(found)

    few = [blocks(job) for job in fill(100)]
    fill(10_000)
    last = [str(row[0]) for row in conn.execute("select max(id::text) from stepwell.job group by state").fetchall()]
    many = [blocks(job) for job in last]
    # A line is counted up to 1,000 jobs.
    assert max(many) < max(few) + 1200, (few, many)
    assert sorted(many)[1] < max(few) + 20, (few, many)


@pytest.mark.parametrize(
    ("kind", "may"), [("viewer", True), ("operator", True), ("producer", False), ("worker", False)]
)
def test_viewers_and_operators_may_ask(conn: psycopg.Connection[Any], kind: str, may: bool) -> None:
    role = f"asks_{uuid4().hex[:8]}"
    conn.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    try:
        conn.execute("select stepwell.grant_role(%s, array[%s])", (role, kind))
        conn.execute("select stepwell.set_limit('k', 1)")
        conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        for asked in ("select cause from stepwell.why(%s::uuid)", "select key from stepwell.limits where key <> %s"):
            if may:
                assert conn.execute(asked, (str(uuid4()),)).fetchone() is not None
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(asked, (str(uuid4()),))
    finally:
        conn.execute("reset role")
        conn.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(role)))
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


async def test_a_callback_waits_for_the_members_of_its_group(app: App) -> None:
    end = asyncio.Event()

    @app.task
    async def work(n: int) -> None:
        if n:
            await end.wait()

    @app.task
    async def publish(summary: GroupSummary) -> int:
        return summary.total

    async with Worker(app):
        group = await app.agroup([work.call(n) for n in range(3)], then=publish)

        async def one_has_ended() -> bool:
            return "1 of 3 members have ended" in (await group.then.awhy()).subject

        await auntil(one_has_ended)
        why = await group.then.awhy()
        members = await app.ajobs(group=group, state="running")
        assert (why.cause, set(why.jobs)) == ("group", {job.id for job in members})
        assert why.subject.startswith(f"it is the callback of the group {group.id}, of which 1 of 3")
        assert f"stepwell jobs list --group {group.id} --state running" in why.next_act
        assert {job.group_id for job in await app.ajobs(group=str(group.id))} == {group.id}
        assert len(await app.ajobs(group=group.id)) == 3
        assert await app.ajobs(group=uuid4()) == []
        with pytest.raises(ConfigError, match="give a group, or its id"):
            await app.ajobs(group="nope")
        end.set()
        assert await group.then.aresult(timeout="20s") == 3


async def test_a_job_whose_unique_key_is_taken_cannot_run_again(app: App) -> None:
    @app.task(unique="{user}", retry=Retry(max_attempts=1))
    async def sync(user: str, fails: bool) -> None:
        if fails:
            raise ValueError("boom")

    async with Worker(app):
        failed = await sync.aenqueue("ada", True)
        assert (await becomes(failed, "ended")).subject == "it has failed: ValueError: boom"
    holder = await sync.aenqueue("ada", False)
    why = await failed.awhy()
    assert (why.cause, why.jobs, why.until) == ("unique", (holder.id,), None)
    assert why.subject == (
        f"it has failed: ValueError: boom; it cannot run again because job {holder.id} has its unique key"
    )
    assert why.next_act.endswith(f"then run this one again: stepwell jobs retry {failed.id}")
    with pytest.raises(JobExists):
        await failed.aretry()
    await holder.acancel()
    assert (await failed.awhy()).cause == "ended"
