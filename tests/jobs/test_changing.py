"""One job: run it now, give it other args, and resume it at any step or state."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from cli.commands import Jobs, make_schedule
from waiting import auntil

from stepwell import (
    App,
    BadArgs,
    ConfigError,
    Context,
    Done,
    Fail,
    JobFailed,
    JobHandle,
    JobInfo,
    JobNotFound,
    Next,
    Retry,
    StepNotFound,
    Worker,
)
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch


@pytest.fixture
def jobs(conn: psycopg.Connection[Any]) -> Jobs:
    return Jobs(conn)


async def look(job: JobHandle[Any]) -> JobInfo:
    info = await job.ainfo()
    assert info is not None
    return info


async def waits(job: JobHandle[Any], state: str = "waiting") -> None:
    async def there() -> bool:
        return (await look(job)).state == state

    await auntil(there)


async def ended(job: JobHandle[Any]) -> JobInfo:
    with contextlib.suppress(JobFailed):
        await job.aresult(timeout="20s")
    return await look(job)


async def test_a_job_that_was_put_off_is_run_now(app: App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    job = await double.using(delay="1h", priority=3).aenqueue(4)
    async with Worker(app):
        assert await job.arun_now()
        assert await job.aresult(timeout="20s") == 8
    assert (await look(job)).priority == 3
    assert not await job.arun_now()


async def test_a_job_is_moved_while_it_waits_and_deleted_when_it_has_ended(app: App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    job = await double.using(delay="1h").aenqueue(4)
    assert await job.amove(queue="elsewhere", priority=3, run_at=datetime.now(UTC))
    assert not await job.adelete()
    async with Worker(app, queues=["elsewhere"]):
        assert await job.aresult(timeout="20s") == 8
    info = await look(job)
    assert (info.queue, info.priority) == ("elsewhere", 3)
    assert not await job.amove(queue="default")
    assert await job.adelete()
    assert not await job.aexists()
    with pytest.raises(JobNotFound):
        await job.amove(queue="default")
    with pytest.raises(ConfigError, match="move where"):
        await job.amove()
    with pytest.raises(ConfigError, match="without a time zone"):
        await job.amove(run_at=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_a_worker_works_off_a_bulk_operation_that_was_started_while_it_slept(app: App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    jobs = await double.using(delay="1h").aenqueue_many([{"n": n} for n in range(3)])
    async with Worker(app):
        await double.aenqueue(0)
        [bulk] = await app.database.afetch(queries.bulk.start("run", {"task": "double"}, {}, None, "ada"))
        assert [await job.aresult(timeout="20s") for job in jobs] == [0, 2, 4]

        async def done() -> bool:
            return (await app.database.afetch(queries.bulk.bulks(bulk)))[0].bulks[0].state == "done"

        await auntil(done)


async def test_a_job_that_waits_for_its_next_attempt_or_that_of_a_step_is_run_now(app: App) -> None:
    tries: list[str] = []

    async def charge() -> str:
        tries.append("step")
        if tries.count("step") == 1:
            raise ValueError("no answer")
        return "paid"

    @app.task
    async def order(ctx: Context) -> str:
        return await ctx.step(charge, retry=Retry(initial="1h"))

    @app.task(retry=Retry(initial="1h"))
    async def flaky() -> str:
        tries.append("job")
        if tries.count("job") == 1:
            raise ValueError("no answer")
        return "done"

    async with Worker(app):
        durable, plain = await order.aenqueue(), await flaky.aenqueue()
        await waits(durable)
        await waits(plain, "scheduled")
        assert await durable.arun_now()
        assert await plain.arun_now()
        assert await durable.aresult(timeout="20s") == "paid"
        assert await plain.aresult(timeout="20s") == "done"


async def test_a_chain_that_waits_before_its_next_step_is_run_now(app: App) -> None:
    async def fetch_page(n: int) -> Next[int]:
        return Next(n + 1, after="1h")

    async def store(n: int) -> int:
        return n

    chain = app.chain("ingest", fetch_page, store)
    async with Worker(app):
        job = await chain.aenqueue(1)
        await waits(job)
        assert await job.arun_now()
        assert await job.aresult(timeout="20s") == 2


async def test_what_belongs_to_the_work_of_a_job_is_not_hurried(app: App, jobs: Jobs) -> None:
    @app.task
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep("1h")

    @app.task
    async def listener(ctx: Context) -> None:
        await ctx.wait_for("never", timeout="1h")

    async with Worker(app):
        asleep, listening = await sleeper.aenqueue(), await listener.aenqueue()
        await waits(asleep)
        await waits(listening)
        due = (await look(asleep)).run_at
        assert not await asleep.arun_now()
        assert not await listening.arun_now()
        assert (await look(asleep)).run_at == due
        assert (await look(asleep)).state == "waiting"
    for job in (jobs.ready(), jobs.running("other"), jobs.failed("no", task="third"), jobs.succeeded(task="fourth")):
        before = await look(app.job(job))
        assert not await app.job(job).arun_now()
        assert await look(app.job(job)) == before
    with pytest.raises(JobNotFound, match="there is no job"):
        await app.job(UUID(int=7)).arun_now()


async def test_a_blocked_run_of_a_schedule_is_not_hurried_and_its_args_can_be_edited(app: App, jobs: Jobs) -> None:
    @app.task
    def add(x: int) -> int:
        return x

    make_schedule(jobs, "nightly", "add", owner=app.name)
    schedule = app.schedule_named("nightly")
    await schedule.atrigger()
    jobs.connection.execute("update stepwell.job set state = 'blocked'")
    [run] = await app.ajobs(state="blocked")
    assert not await app.job(run.id).arun_now()
    assert await app.job(run.id).aedit_args(x=5)
    assert (await look(app.job(run.id))).args == {"x": 5}
    assert (await look(app.job(run.id))).state == "blocked"


async def test_the_args_of_a_job_that_has_not_begun_are_edited_by_the_tasks_signature(app: App) -> None:
    @app.task
    async def remind(who: str, at: datetime, times: int = 1) -> str:
        return f"{who} {at:%Y} {times}"

    moment = datetime.fromisoformat("2031-01-01T00:00:00+00:00")
    ready, later = await remind.aenqueue("ada", moment), await remind.using(delay="1h").aenqueue("ada", moment)
    assert await ready.aedit_args("bob", at=moment, times=2)
    # A handle that is made from an id takes the task from the app.
    assert await app.job(later.id).aedit_args("eve", moment)
    assert (await look(later)).args == {"who": "eve", "at": "2031-01-01T00:00:00Z"}
    assert (await look(later)).state == "scheduled"
    with pytest.raises(BadArgs, match="it needs 'at'"):
        await ready.aedit_args("bob")
    with pytest.raises(BadArgs, match="it does not know 'whom'"):
        await app.job(ready.id).aedit_args("bob", moment, whom="x")
    with pytest.raises(BadArgs, match="argument 'times'"):
        await ready.aedit_args("bob", moment, times="many")
    async with Worker(app):
        assert await ready.aresult(timeout="20s") == "bob 2031 2"
    assert not await ready.aedit_args("bob", moment)


async def test_a_failed_job_is_run_again_with_other_args(app: App) -> None:
    @app.task
    async def divide(by: int) -> float:
        if by == 0:
            raise Fail("not by zero")
        return 8 / by

    async with Worker(app):
        job = await divide.aenqueue(0)
        assert (await ended(job)).state == "failed"
        assert await job.aedit_args(by=2)
        assert (await look(job)).args == {"by": 2}
        assert (await look(job)).state == "failed"
        assert await job.aretry()
        assert await job.aresult(timeout="20s") == 4


async def test_a_job_that_runs_or_waits_in_the_middle_of_its_work_keeps_its_args(app: App, jobs: Jobs) -> None:
    @app.task
    async def sleeper(ctx: Context, x: int) -> None:
        await ctx.sleep("1h")

    @app.task
    def add(x: int) -> None: ...

    async with Worker(app, queues=["other"]):
        asleep = await sleeper.using(queue="other").aenqueue(1)
        await waits(asleep)
    running = app.job(jobs.running())
    for job in (asleep, running):
        assert not await job.aedit_args(x=7)
        assert (await look(job)).args == {"x": 1}
    with pytest.raises(JobNotFound, match="there is no job"):
        await app.job(UUID(int=7)).aedit_args(x=7)
    with pytest.raises(ConfigError, match="task 'elsewhere', which this app does not have"):
        await app.job(jobs.ready("elsewhere")).aedit_args(x=7)


async def test_a_job_that_waits_as_its_args_did_not_fit_is_ready_with_others(app: App, jobs: Jobs) -> None:
    @app.task
    def add(x: int) -> None: ...

    jobs.ready("add", '{"y": 1}')
    claimed = jobs.claim("add")
    fetch(jobs.connection, queries.outcomes.hold_misfits([claimed.id], [claimed.epoch], [7], ["no y"], [3600.0]))
    job = app.job(claimed.id)
    assert (await look(job)).misfit_until is not None
    assert await job.aedit_args(x=1)
    info = await look(job)
    assert (info.state, info.misfit_until, info.error) == ("ready", None, None)


async def test_a_chain_is_resumed_at_any_step_with_any_input(app: App) -> None:
    runs: list[str] = []

    async def fetch_page(url: str) -> str:
        runs.append("fetch_page")
        raise Fail("no such host")

    async def parse(page: str) -> list[str]:
        runs.append("parse")
        return page.split()

    async def store(words: list[str]) -> int:
        if not words:
            raise Fail("nothing to store")
        return len(words)

    chain = app.chain("ingest", fetch_page, parse, store)
    async with Worker(app):
        job = await chain.aenqueue("http://a")
        assert (await ended(job)).state == "failed"
        with pytest.raises(StepNotFound, match=r"has not reached 'parse' yet: .* input="):
            await job.aretry(step="parse")
        assert await job.aretry(step="parse", input="")
        info = await ended(job)
        assert (info.state, info.cursor, runs) == ("failed", "store", ["fetch_page", "parse"])
        first = ("fetch_page", {"url": "http://a"})
        assert [(step.key, step.value) for step in info.steps] == [first, ("parse", ""), ("store", [])]
        assert await app.job(job.id).aretry(step="store", input=["a", "b"])
        assert await job.aresult(timeout="20s") == 2
        assert runs == ["fetch_page", "parse"]
    info = await look(job)
    assert {step.key: step.value for step in info.steps} == dict([first, ("parse", ""), ("store", ["a", "b"])])


async def test_the_first_step_of_a_chain_is_given_an_input_if_it_takes_one(app: App) -> None:
    async def one(n: int) -> int:
        if n == 0:
            raise Fail("zero")
        return n

    async def two(a: int, b: int) -> int:
        raise Fail("no")

    single, several = app.chain("single", one), app.chain("several", two, one)
    async with Worker(app):
        job, other = await single.aenqueue(0), await several.aenqueue(1, 2)
        await ended(job)
        await ended(other)
        with pytest.raises(ConfigError, match=r"takes the arguments of the chain.*edit_args"):
            await other.aretry(step="two", input=1)
        assert await job.aretry(step="one", input=0)
        await ended(job)
        assert await job.aretry(step="one", input=3)
        assert await job.aresult(timeout="20s") == 3


async def test_an_input_that_does_not_fit_is_refused(app: App) -> None:
    async def first(n: int) -> int:
        raise Fail("no")

    async def second(n: int) -> int:
        return n

    @app.task
    async def plain() -> None:
        raise Fail("no")

    chain = app.chain("count", first, second)
    async with Worker(app):
        job, other = await chain.aenqueue(1), await plain.aenqueue()
        await ended(job)
        await ended(other)
    with pytest.raises(BadArgs, match="the input of step 'second' of chain 'count' does not fit: argument"):
        await job.aretry(step="second", input="many")
    with pytest.raises(BadArgs, match="does not encode"):
        await job.aretry(step="second", input=object())
    with pytest.raises(StepNotFound, match="chain 'count' has no step 'third': it has first, second"):
        await job.aretry(step="third", input=1)
    with pytest.raises(ConfigError, match="name the step"):
        await job.aretry(input=1)
    with pytest.raises(ConfigError, match="exclude each other"):
        await job.aretry(input=1, from_start=True)
    with pytest.raises(ConfigError, match="'plain' is neither a chain nor a machine"):
        await other.aretry(step="second", input=1)
    assert (await look(job)).state == "failed"


async def test_a_durable_function_is_given_no_input_by_sql_either(app: App, jobs: Jobs) -> None:
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step(lambda: 1, key="reserve")
        raise Fail("no")

    async with Worker(app):
        job = await order.aenqueue()
        await ended(job)
    with pytest.raises(psycopg.Error, match="only a step of a chain or a state of a machine") as caught:
        fetch(jobs.connection, queries.jobs.retry([str(job.id)], "reserve", input="1"))
    assert caught.value.sqlstate == "SW002"


async def test_a_machine_is_resumed_at_any_state(app: App) -> None:
    machine = app.machine("subscription")

    @machine.state(start=True)
    @dataclass
    class Trial:
        customer: str

        async def run(self) -> Next[Any]:
            raise Fail("no card")

    @machine.state
    @dataclass
    class Active:
        customer: str
        months: int = 0

        async def run(self) -> Done[str]:
            if self.months < 0:
                raise Fail("negative")
            return Done(f"{self.customer} paid {self.months}")

    async with Worker(app):
        job = await machine.aenqueue(Trial("ada"))
        assert (await ended(job)).state == "failed"
        with pytest.raises(BadArgs, match="leave step out"):
            await job.aretry(step="Trial", input=Active("ada"))
        with pytest.raises(BadArgs, match="is not a state of machine"):
            await job.aretry(input="Active")
        with pytest.raises(BadArgs, match="months"):
            await job.aretry(step="Active", input={"customer": "ada", "months": "x"})
        with pytest.raises(StepNotFound, match="has no state 'Gone': it has Trial, Active"):
            await job.aretry(step="Gone", input={})
        assert await job.aretry(input=Active("ada", -1))
        assert (await ended(job)).cursor == "Active"
        assert await job.aretry(step="Active", input={"customer": "eve", "months": 2})
        assert await job.aresult(timeout="20s") == "eve paid 2"


async def test_a_machine_begins_anew_with_other_args(app: App) -> None:
    machine = app.machine("count")

    @machine.state(start=True)
    @dataclass
    class Count:
        n: int

        async def run(self) -> Done[int]:
            if self.n == 0:
                raise Fail("zero")
            return Done(self.n)

    async with Worker(app):
        job = await machine.aenqueue(Count(0))
        await ended(job)
        assert await job.aedit_args(Count(3))
        assert await job.aretry(from_start=True)
        assert await job.aresult(timeout="20s") == 3
