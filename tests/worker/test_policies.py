"""Jobs with a policy of their own: what `using` and a schedule say goes before what the task says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from process_tasks import register

from stepwell import (
    App,
    ConfigError,
    Context,
    Done,
    JobFailed,
    JobHandle,
    JobInfo,
    Next,
    Restart,
    Retry,
    Step,
    SyncContext,
    Worker,
)

SOON = Retry(max_attempts=3, backoff="fixed", initial=0, jitter=0)
LATE = Retry(max_attempts=20, initial="1h")


async def failed(job: JobHandle[Any], match: str | None = None) -> JobInfo:
    with pytest.raises(JobFailed, match=match):
        await job.aresult(timeout="20s")
    info = await job.ainfo()
    assert info is not None
    return info


def kept_for(info: JobInfo) -> timedelta:
    assert info.expires_at is not None
    assert info.finished_at is not None
    return info.expires_at - info.finished_at


async def test_a_jobs_own_retry_and_keeps_go_before_the_tasks(app: App) -> None:
    @app.task(retry=LATE, keep="1d", keep_failed="1d")
    async def work(fail: bool) -> None:
        if fail:
            raise ValueError("no")

    using = work.using(retry=SOON, keep="2h").using(keep_failed="3h")
    async with Worker(app):
        info = await failed(await using.aenqueue(True))
        assert (info.attempt, len(info.failures), kept_for(info)) == (3, 3, timedelta(hours=3))
        good = await using.aenqueue(False)
        await good.aresult(timeout="20s")
        assert kept_for(await good.ainfo() or info) == timedelta(hours=2)
        for forever in (work.using(keep="forever"), using.using(keep="forever")):
            job = await forever.aenqueue(False)
            await job.aresult(timeout="20s")
            kept = await job.ainfo()
            assert kept is not None
            assert kept.expires_at is None
        unkept = await work.using(keep=0).aenqueue(False)
        other = await work.aenqueue(False)
        await other.aresult(timeout="20s")
        assert await unkept.ainfo() is None
        assert kept_for(await other.ainfo() or info) == timedelta(days=1)


async def test_what_a_job_has_of_its_own_is_shown(app: App) -> None:
    @app.task
    async def work() -> None: ...

    retry = Retry(max_attempts=7, backoff="linear", initial="2s", cap="1m", jitter=0.5)
    info = await (await work.using(retry=retry, timeout="1m", keep="forever", keep_failed=0).aenqueue()).ainfo()
    assert info is not None
    assert info.max_attempts == 7
    assert info.policy == {
        "retry": {"backoff": "linear", "initial": 2.0, "factor": 2.0, "cap": 60.0, "jitter": 0.5},
        "timeout": 60.0,
        "keep": "Infinity",
        "keep_failed": 0.0,
    }
    plain = await (await work.using(max_attempts=2).aenqueue()).ainfo()
    assert plain is not None
    assert plain.policy is None
    assert (await (await work.using(retry=retry, max_attempts=2).aenqueue()).ainfo() or info).max_attempts == 2


@pytest.mark.slow
async def test_a_jobs_own_policy_holds_in_coroutines_threads_and_processes(app: App) -> None:
    @app.task(timeout="1h")
    async def work() -> None:
        await asyncio.sleep(60)

    @app.task(timeout="1h")
    def plain(ctx: SyncContext) -> None:
        ctx.wait_cancelled(60)

    in_processes = register(app)
    async with Worker(app):
        jobs = [
            await work.using(timeout="50ms", max_attempts=1).aenqueue(),
            await plain.using(timeout="50ms", max_attempts=1).aenqueue(),
            await in_processes["sleep"].using(timeout="50ms").aenqueue(60),
        ]
        for job in jobs:
            info = await failed(job, "longer than its timeout of 50ms")
            assert info.failures[0].reason == "timeout"
        # Tried once by its task. The process itself reckons the pause.
        assert len((await failed(await in_processes["divide"].using(retry=SOON).aenqueue(0))).failures) == 3


async def test_it_holds_in_every_step_of_a_chain_and_state_of_a_machine(app: App) -> None:
    async def one(n: int) -> int:
        return n

    async def two(n: int) -> None:
        await asyncio.sleep(60)

    chain = app.chain("chain", one, Step(two, retry=LATE, timeout="1h"), retry=LATE)
    machine = app.machine("machine", retry=LATE)

    @machine.state(retry=LATE)
    @dataclass
    class Stuck:
        async def run(self) -> Done[None]:
            raise ValueError("stuck")

    @machine.state(start=True)
    @dataclass
    class Begin:
        async def run(self) -> Next[Stuck]:
            return Next(Stuck())

    async with Worker(app):
        info = await failed(await chain.using(retry=SOON, timeout="20ms").aenqueue(1), "its timeout of 20ms")
        assert (info.cursor, len(info.failures)) == ("two", 3)
        assert len((await failed(await machine.using(retry=SOON).aenqueue(Begin()), "stuck")).failures) == 3


async def test_which_errors_are_tried_again_stays_for_the_task_to_say(app: App) -> None:
    @app.task(retry=Retry(never_on=(LookupError,)))
    async def work() -> None:
        raise LookupError("never")

    async with Worker(app):
        assert len((await failed(await work.using(retry=SOON).aenqueue())).failures) == 1


async def test_it_goes_with_the_job_through_retry_restart_and_to_children(app: App) -> None:
    @app.task(retry=LATE)
    async def child() -> None:
        raise ValueError("child")

    @app.task(retry=LATE)
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.using(retry=SOON))

    @app.task(retry=LATE)
    async def again(n: int) -> Restart:
        if n == 2:
            raise ValueError("again")
        return Restart(n + 1)

    async with Worker(app):
        job = await parent.using(retry=Retry(max_attempts=1)).aenqueue()
        info = await failed(job, "child")
        child_info = await app.job(info.steps[0].child_id or "").ainfo()
        assert child_info is not None
        assert len(child_info.failures) == 3
        restarted = await again.using(retry=SOON).aenqueue(0)
        assert len((await failed(restarted)).failures) == 3
        assert await restarted.aretry()
        assert len((await failed(restarted)).failures) == 6


async def test_the_runs_of_a_schedule_have_what_it_says(app: App) -> None:
    @app.schedule("1h", name="declared", metadata={"by": "code"}, retry=SOON, timeout="50ms", keep_failed="1h")
    @app.task(retry=LATE)
    async def work() -> None:
        await asyncio.sleep(60)

    made = await app.aschedule_task(work, "1h", name="made", metadata={"by": "hand"}, retry=SOON, timeout="50ms")
    assert (made.metadata, made.max_attempts, made.policy) == (
        {"by": "hand"},
        3,
        {"retry": {"backoff": "fixed", "initial": 0.0, "factor": 2.0, "cap": 3600.0, "jitter": 0.0}, "timeout": 0.05},
    )
    async with Worker(app):
        for name, by in (("declared", "code"), ("made", "hand")):
            info = await failed(await app.schedule_named(name).atrigger(), "its timeout of 50ms")
            assert (info.metadata, len(info.failures)) == ({"by": by}, 3)
    # Without them they are gone.
    assert (await app.aschedule_task(work, "1h", name="made")).policy is None


def test_what_cannot_be_stored_with_a_job_is_refused(app: App) -> None:
    @app.task
    async def work() -> None: ...

    def pause(attempt: int, error: BaseException) -> float:
        return attempt

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"retry": Retry(backoff=pause)}, "name a backoff, such as 'linear', or set it on the task"),
        ({"retry": Retry(retry_on=(OSError,))}, "leave them out, so that those of the task apply"),
        ({"retry": Retry(never_on=(OSError,))}, "leave them out, so that those of the task apply"),
        ({"retry": "often"}, "give a Retry"),
        ({"timeout": 0}, "leave it out"),
        ({"keep": "always"}, '"forever"'),
        ({"keep_failed": -1}, "negative"),
    ]
    for options, said in wrong:
        with pytest.raises(ConfigError) as raised:
            work.using(**options)
        assert said in str(raised.value)
        with pytest.raises(ConfigError):
            app.schedule("1h", **options)(work)


async def test_a_policy_that_no_worker_can_read_leaves_the_job_to_its_task(
    app: App, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work() -> str:
        return "done"

    deep = 900 * "[" + 900 * "]"
    wrong = ('{"timeout": "soon"}', '{"timeout": -1}', '{"retry": {"backoff": "odd"}}', f'{{"retry": {deep}}}')
    async with Worker(app):
        for policy in wrong:
            row = conn.execute(
                "select (stepwell.enqueue_many('{work}', array['{}'], _policies => array[%s]))[1]::text", (policy,)
            ).fetchone()
            assert row is not None
            assert await app.job(row[0]).aresult(timeout="20s") == "done"
            assert f"the policy of work {row[0]} cannot be read, so the job uses the policy of its task" in caplog.text
