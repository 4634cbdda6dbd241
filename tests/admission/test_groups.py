"""Groups: members are counted as they end, and the callback starts once, when all have ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, LiteralString, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from waiting import auntil

from stepwell import (
    App,
    BadArgs,
    Call,
    ConfigError,
    Context,
    Fail,
    Group,
    GroupNotFound,
    GroupProgress,
    GroupSummary,
    JobCancelled,
    Limit,
    Retry,
    Worker,
)

Connection = psycopg.Connection[Any]


@dataclass
class Told:
    """What callbacks were called with."""

    summaries: list[GroupSummary]

    @property
    def counts(self) -> list[tuple[int, int, int, int]]:
        return [(s.total, s.succeeded, s.failed, s.cancelled) for s in self.summaries]


@pytest.fixture
def told() -> Told:
    return Told([])


def state_of(conn: Connection, job_id: UUID) -> str | None:
    row = conn.execute("select state from stepwell.jobs where id = %s", (job_id,)).fetchone()
    return row and row[0]


def tallies(conn: Connection) -> int:
    return (conn.execute("select count(*) from stepwell.group_tally").fetchone() or (0,))[0]


@pytest.mark.slow
async def test_two_thousand_members_with_failures_retries_and_cancels(app: App, told: Told) -> None:
    runs: Counter[int] = Counter()

    @app.task(retry=Retry(initial="1ms", cap="1ms", max_attempts=3))
    async def work(n: int) -> int:
        runs[n] += 1
        if n % 10 == 0:
            raise Fail(f"{n} is bad")
        if n % 10 == 1 and runs[n] < 3:
            raise ValueError("not yet")
        return n

    @app.task(queue="then")
    async def tell(summary: GroupSummary) -> int:
        told.summaries.append(summary)
        return summary.succeeded

    group = await app.agroup([work.call(n) for n in range(2000)], then=tell)
    before = await group.aprogress()
    assert (before, before.done) == (GroupProgress(2000, 0, 0, 0), 0)
    with pytest.raises(TimeoutError, match="has not ended within"):
        await group.aresult(timeout=0.01)
    ids = [job.id for job in await app.ajobs(task="work", limit=2000)]
    for job_id in ids[::20]:
        assert await app.job(job_id).acancel()
    assert (await group.aprogress()) == GroupProgress(2000, 0, 0, 100)
    async with Worker(app, concurrency=100), Worker(app, concurrency=100):
        summary = await group.aresult(timeout="60s")
        assert await group.then.aresult(timeout="20s") == summary.succeeded
    assert told.summaries == [summary]
    # Every twentieth from the newest is n = 1999, 1979, ...: none of those that fail.
    assert told.counts == [(2000, 1700, 200, 100)]
    assert len(summary.failures) == 10
    assert all(" is bad" in failure.error for failure in summary.failures)
    assert summary.id == group.id
    assert (await group.aprogress()).done == 2000


async def test_results_come_by_page_in_the_order_of_the_calls(app: App) -> None:
    @app.task
    async def double(n: int) -> int:
        if n == 4:
            raise Fail("four")
        return n * 2

    @app.task(keep=0)
    async def forgotten(n: int) -> int:
        return n

    calls: list[Call[Any]] = [double.call(n) for n in range(10)]
    group = await app.agroup([*calls[:5], forgotten.call(1), *calls[5:]])
    other = await app.agroup([double.call(100)])
    async with Worker(app):
        summary = await group.aresult(timeout="20s")
        await other.aresult(timeout="20s")
    assert (summary.total, summary.succeeded, summary.failed) == (11, 10, 1), "one that is not kept counts, too"
    pages = [await group.aresults(limit=4)]
    while pages[-1]:
        pages.append(await group.aresults(after=pages[-1][-1], limit=4))
    assert [len(page) for page in pages] == [4, 4, 2, 0]
    found = [result for page in pages for result in page]
    assert [result.result for result in found] == [0, 2, 4, 6, None, 10, 12, 14, 16, 18]
    assert (found[4].state, found[4].error, found[4].task) == ("failed", "stepwell.Fail: four", "double")
    assert [failure.id for failure in summary.failures] == [found[4].id]
    assert await group.aresults(after=found[-1].id) == []
    assert [result.result for result in await other.aresults()] == [200]


async def test_the_callback_exists_from_the_beginning_and_waits(app: App, conn: Connection, told: Told) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(ctx: Context, summary: GroupSummary, note: str = "x") -> str:
        told.summaries.append(summary)
        return note

    gate = await work.using(delay="1h").aenqueue(1)
    group = await app.agroup([work.call(1), work.using(delay="1h").call(2)], then=tell)
    info = await group.then.ainfo()
    assert info
    assert (info.state, info.task, info.args) == ("blocked", "tell", {})
    assert not await group.then.arun_now()
    async with Worker(app):
        await auntil(lambda: _done(group, 1))
        assert state_of(conn, group.then.id) == "blocked"
        [late] = [job for job in await app.ajobs(task="work", state="scheduled") if job.id != gate.id]
        assert await app.job(late).arun_now()
        assert await group.then.aresult(timeout="20s") == "x"
    assert told.counts == [(2, 2, 0, 0)]


async def _done(group: Group[Any], count: int) -> bool:
    return (await group.aprogress()).done == count


async def test_an_empty_group_starts_its_callback_at_once(app: App, told: Told) -> None:
    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([], then=tell)
    assert (await group.aresult(timeout="60s")).total == 0
    async with Worker(app):
        await group.then.aresult(timeout="20s")
    assert told.counts == [(0, 0, 0, 0)]
    assert await group.aresults() == []


async def test_a_callback_may_take_no_arguments_and_have_options(app: App, conn: Connection) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def after() -> str:
        return "after"

    group = await app.agroup(
        [work.call(1)], then=after.using(queue="late", priority=7, delay="1h", metadata={"a": 1}, max_attempts=3)
    )
    async with Worker(app, queues=["default"]):
        await group.aresult(timeout="20s")
    info = await group.then.ainfo()
    assert info
    assert (info.state, info.queue, info.priority, info.metadata) == ("scheduled", "late", 7, {"a": 1})
    row = conn.execute("select finished_at + interval '1 hour' from stepwell.job_group").fetchone()
    assert row == (info.run_at,), "the delay begins at the end of the group"


@pytest.mark.slow
async def test_a_callback_with_a_limit_queues_for_it(app: App, told: Told) -> None:
    running: list[int] = []
    most: list[int] = []

    @app.task
    async def work(n: int) -> None: ...

    @app.task(limit=Limit(1, key="tell"))
    async def tell(summary: GroupSummary) -> None:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.02)
        running.pop()
        told.summaries.append(summary)

    groups = [await app.agroup([work.call(n)], then=tell) for n in range(5)]
    async with Worker(app):
        for group in groups:
            await group.then.aresult(timeout="20s")
    assert (len(told.summaries), max(most)) == (5, 1)


async def test_groups_of_groups(app: App, told: Told) -> None:
    """A callback may make the next group, and tasks may have groups of their own."""

    @app.task
    async def work(n: int) -> int:
        return n

    @app.task
    async def last(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    @app.task
    async def between(summary: GroupSummary) -> str:
        results = await (await app.aget_group(summary)).aresults()
        group = await app.agroup([work.call(result.result) for result in results], then=last)
        return str(group.id)

    group = await app.agroup([work.call(n) for n in range(3)], then=between)
    async with Worker(app):
        found = await app.aget_group(await group.then.aresult(timeout="20s"))
        await found.then.aresult(timeout="20s")
    assert told.counts == [(3, 3, 0, 0)]


async def test_a_group_found_again_is_the_same(app: App) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> UUID:
        return summary.id

    group = await app.agroup([work.call(1)], then=tell)
    found = await app.aget_group(str(group.id))
    assert (found, found.then, found.id) == (group, group.then, group.id)
    assert len({found, group}) == 1
    async with Worker(app):
        assert await found.then.aresult(timeout="20s") == group.id, "typed, because the app has the task"
    without = await app.agroup([])
    with pytest.raises(ConfigError, match="has no callback"):
        _ = without.then
    with pytest.raises(ConfigError, match="has no callback"):
        _ = (await app.aget_group(without.id)).then


async def test_one_that_does_not_exist(app: App, conn: Connection) -> None:
    with pytest.raises(GroupNotFound, match="there is no group"):
        await app.aget_group(uuid4())
    with pytest.raises(ConfigError, match="not a group's id"):
        await app.aget_group("x")

    @app.task
    async def work(n: int) -> None: ...

    group = await app.agroup([work.call(1)])
    conn.execute("delete from stepwell.job_group")
    for call in (group.aprogress, group.aresults, group.acancel, group.aresult):
        with pytest.raises(GroupNotFound, match="there is no group"):
            await call()


def test_sync_code_has_the_same(dsn: str) -> None:
    with App(dsn) as app:

        @app.task
        def work(n: int) -> int:
            return n

        @app.task
        def tell(summary: GroupSummary) -> int:
            return summary.succeeded

        group = app.group([work.call(n) for n in range(3)], then=tell)
        assert group.progress().done == 0
        with pytest.raises(TimeoutError, match="has not ended within"):
            group.result(timeout=0.01)
        assert app.get_group(group.id).then == group.then

        async def work_off() -> None:
            async with App(dsn) as other:
                other.task(name="work")(work.fn)
                other.task(name="tell")(tell.fn)
                async with Worker(other):
                    await other.job(group.then.id).aresult(timeout="20s")

        asyncio.run(work_off())
        assert (group.result(timeout="60s").succeeded, group.then.result(timeout="60s")) == (3, 3)
        assert [result.result for result in group.results()] == [0, 1, 2]
        assert group.cancel() == 0
        with psycopg.connect(dsn) as own:
            empty = app.group([], connection=own)
            own.commit()
            assert empty.cancel(connection=own) == 0


async def test_bad_input_enqueues_nothing(app: App, conn: Connection) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def two(summary: GroupSummary, needed: int) -> None: ...

    @app.task
    async def number(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> None: ...

    with pytest.raises(BadArgs, match=r"item 1: app\.group takes calls"):
        await app.agroup([work.call(1), cast("Any", {"n": 2})], then=tell)
    with pytest.raises(ConfigError, match="'two' is called with a GroupSummary"):
        await app.agroup([work.call(1)], then=two)
    with pytest.raises(ConfigError, match="'number' is called with a GroupSummary"):
        await app.agroup([work.call(1)], then=number)
    with pytest.raises(ConfigError, match="give a task"):
        await app.agroup([work.call(1)], then=cast("Any", print))
    with pytest.raises(ConfigError, match="no connection of its own"):
        await app.agroup([work.call(1)], then=tell.using(connection=conn))
    group = await app.agroup([], then=tell)
    for limit in (0, -1, True, 10**9, "3"):
        with pytest.raises(ConfigError, match="limit"):
            await group.aresults(limit=cast("Any", limit))
    with pytest.raises(ConfigError, match="not a job's id"):
        await group.aresults(after="x")
    with pytest.raises(BadArgs, match="reason"):
        await group.acancel("\0")
    assert conn.execute("select count(*) from stepwell.jobs where task <> 'tell'").fetchone() == (0,)


async def test_cancel_ends_all_members_and_the_callback_hears_of_it(app: App, told: Told) -> None:
    started = asyncio.Event()

    @app.task
    async def work(n: int) -> None:
        if n == 0:
            started.set()
            await asyncio.sleep(60)

    @app.task(queue="then")
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([work.call(0), *(work.using(delay="1h").call(n) for n in range(1, 2500))], then=tell)
    async with Worker(app):
        await started.wait()
        assert await group.acancel("enough") == 2500
        summary = await group.aresult(timeout="20s")
        await group.then.aresult(timeout="20s")
    assert told.summaries == [summary]
    assert told.counts == [(2500, 0, 0, 2500)]
    assert {result.error for result in await group.aresults(limit=3)} == {"enough"}
    assert await group.acancel() == 0


async def test_without_a_worker_progress_and_result_are_right_all_the_same(app: App, conn: Connection) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> int:
        return summary.cancelled

    group = await app.agroup([work.call(n) for n in range(5)], then=tell)
    assert await group.acancel() == 5
    assert await group.aprogress() == GroupProgress(5, 0, 0, 5)
    assert (await group.aresult(timeout="60s")).cancelled == 5
    assert tallies(conn) == 1
    async with Worker(app):
        assert await group.then.aresult(timeout="20s") == 5
    assert tallies(conn) == 0


async def test_cancel_may_include_the_callback_which_a_retry_starts_later(app: App, told: Told) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([work.call(n) for n in range(5)], then=tell)
    assert await group.acancel(then=True) == 5
    async with Worker(app):
        with pytest.raises(JobCancelled):
            await group.then.aresult(timeout="20s")
        assert (await group.aresult(timeout="20s")).cancelled == 5
        assert told.counts == []
        assert await group.then.aretry()
        await group.then.aresult(timeout="20s")
    assert told.counts == [(5, 0, 0, 5)]


async def test_a_cancelled_callback_that_is_retried_too_early_waits_again(
    app: App, conn: Connection, told: Told
) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([work.using(queue="held").call(1)], then=tell)
    assert await group.then.acancel()
    assert await group.then.aretry()
    assert state_of(conn, group.then.id) == "blocked"
    async with Worker(app, queues=["default"]):
        # The worker looks at the group, because of the retry, and leaves it.
        await auntil(lambda: tallies(conn) == 0)
        assert state_of(conn, group.then.id) == "blocked"
        async with Worker(app, queues=["held"]):
            await group.then.aresult(timeout="20s")
    assert told.counts == [(1, 1, 0, 0)]


async def test_a_failed_callback_is_retried_with_the_same_summary(app: App, told: Told) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)
        if len(told.summaries) == 1:
            raise Fail("once")

    group = await app.agroup([work.call(1)], then=tell)
    async with Worker(app):
        await auntil(lambda: len(told.summaries) == 1)
        await auntil(group.then.aretry)
        await group.then.aresult(timeout="20s")
    assert told.counts == [(1, 1, 0, 0)] * 2


async def test_a_member_that_is_retried_before_the_end_counts_again_when_it_ends_again(app: App, told: Told) -> None:
    good = False

    @app.task
    async def work(n: int) -> None:
        if n and not good:
            raise Fail(f"bad {n}")

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([work.call(1), work.call(2), work.call(3), work.using(queue="held").call(0)], then=tell)
    async with Worker(app, queues=["default"]):
        await auntil(lambda: _done(group, 3))
        assert (await group.aprogress()).failed == 3
        results = await group.aresults()
        await app.apause("default")
        # Failed and retried three times, while the counts are not yet added up.
        assert await app.job(results[0].id).aretry()
        assert await app.aretry_jobs(task=work) == 2
        assert await group.aprogress() == GroupProgress(4, 0, 0, 0)
        assert await app.job(results[2].id).acancel()
        assert await group.aprogress() == GroupProgress(4, 0, 0, 1)
        await app.aresume("default")
        await auntil(lambda: _done(group, 3))
        assert await group.aprogress() == GroupProgress(4, 0, 2, 1)
        good = True
        assert await app.job(results[0].id).aretry()
        await auntil(lambda: _done(group, 3))
        async with Worker(app, queues=["held"]):
            summary = await group.aresult(timeout="20s")
            await group.then.aresult(timeout="20s")
    assert told.counts == [(4, 2, 1, 1)]
    assert [(failure.id, failure.error) for failure in summary.failures] == [(results[1].id, "stepwell.Fail: bad 2")]


async def test_a_member_that_is_retried_after_the_end_changes_nothing(app: App, conn: Connection, told: Told) -> None:
    good = False

    @app.task
    async def work(n: int) -> str:
        if not good:
            raise Fail("bad")
        return "good"

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([work.call(1)], then=tell)
    async with Worker(app):
        summary = await group.aresult(timeout="20s")
        await group.then.aresult(timeout="20s")
        good = True
        [result] = await group.aresults()
        assert await app.job(result.id).aretry()
        assert await group.aprogress() == GroupProgress(1, 0, 1, 0)
        assert await app.job(result.id).aresult(timeout="20s") == "good"
        await auntil(lambda: tallies(conn) == 0)
        assert await group.aresult(timeout="60s") == summary
        assert [each.result for each in await group.aresults()] == ["good"]
    assert told.counts == [(1, 0, 1, 0)]


@pytest.mark.slow
async def test_a_group_in_the_callers_transaction(app: App, dsn: str, told: Told) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    async with Worker(app), await psycopg.AsyncConnection.connect(dsn) as own:
        group = await app.agroup([work.call(n) for n in range(5000)], then=tell, connection=own)
        with pytest.raises(GroupNotFound):
            await group.aprogress()
        await own.rollback()
        with pytest.raises(GroupNotFound):
            await group.aresult(timeout="60s")
        assert await app.acount_jobs() == 0
        group = await app.agroup([work.call(n) for n in range(5000)], then=tell, connection=own)
        await own.commit()
        await group.then.aresult(timeout="60s")
    assert told.counts == [(5000, 5000, 0, 0)]


async def test_a_cancel_in_the_callers_transaction_makes_no_worker_wait(app: App, dsn: str, told: Told) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    calls = [*(work.call(n) for n in range(10)), *(work.using(delay="1h").call(n) for n in range(10))]
    group = await app.agroup(calls, then=tell)
    async with await psycopg.AsyncConnection.connect(dsn) as own:
        await own.execute("select stepwell.cancel(array(select id from stepwell.jobs where state = 'scheduled'))")
        async with Worker(app):
            await auntil(lambda: _done(group, 10))
            await own.rollback()
            assert (await group.aprogress()).done == 10
            assert await group.acancel(connection=own) == 10
            assert (await group.aprogress()).done == 10
            await own.commit()
            await group.then.aresult(timeout="20s")
    assert told.counts == [(20, 10, 0, 10)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_cancel_at_any_isolation_level(app: App, dsn: str, level: str) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def tell(summary: GroupSummary) -> int:
        return summary.cancelled

    async with await psycopg.AsyncConnection.connect(dsn) as own:
        await own.execute(f"set transaction isolation level {level}")  # pyright: ignore
        group = await app.agroup([work.call(n) for n in range(3)], then=tell, connection=own)
        assert await group.acancel(connection=own) == 3
        await own.commit()
    async with Worker(app):
        assert await group.then.aresult(timeout="20s") == 3


async def test_a_transactional_task_counts_when_it_commits(app: App, told: Told) -> None:
    @app.task(transaction=True)
    async def work(ctx: Context, n: int) -> None:
        await ctx.connection.execute("select 1")

    @app.task
    async def tell(summary: GroupSummary) -> None:
        told.summaries.append(summary)

    group = await app.agroup([work.call(n) for n in range(50)], then=tell)
    async with Worker(app, concurrency=10), Worker(app, concurrency=10):
        await group.then.aresult(timeout="30s")
    assert told.counts == [(50, 50, 0, 0)]


async def test_an_expired_group_is_deleted_when_its_callback_is_no_longer_kept(app: App, conn: Connection) -> None:
    @app.task
    async def work(n: int) -> None: ...

    @app.task(keep="10d")
    async def tell(summary: GroupSummary) -> None: ...

    def prune() -> list[UUID]:
        conn.execute("select stepwell.prune_groups()")
        return [row[0] for row in conn.execute("select id from stepwell.job_group order by created_at")]

    live = await app.agroup([work.using(delay="300d").call(1)])
    kept = await app.agroup([work.call(1)], then=tell)
    bare = await app.agroup([work.call(1)])
    async with Worker(app):
        await kept.then.aresult(timeout="20s")
        await bare.aresult(timeout="20s")
    assert prune() == [live.id, kept.id, bare.id]
    conn.execute("update stepwell.job_group set expires_at = stepwell.now() where finished_at is not null")
    assert prune() == [live.id, kept.id], "the callback is kept for ten days"
    conn.execute("update stepwell.history set expires_at = stepwell.now() where id = %s", (kept.then.id,))
    conn.execute("update stepwell.job_group set expires_at = stepwell.now() where finished_at is not null")
    assert prune() == [live.id]


def test_sql_refuses_what_makes_no_group(conn: Connection) -> None:
    group = "'00000000-0000-4000-8000-000000000001'"
    one = "'{t}', array['{}']"

    def call(text: str) -> Any:
        found = conn.execute(cast("LiteralString", f"select {text}")).fetchone()
        return (found or (None,))[0]

    def refused(text: str, why: str) -> None:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=why):
            call(text)

    for arguments in (
        "null",
        f"{group}, -1",
        f"{group}, 'nan'",
        f"{group}, 60, '', {one}",
        f"{group}, 60, 'p', '{{t}}', null",
        f"{group}, 60, 'p', '{{t}}', array['{{}}', '{{}}']",
    ):
        refused(f"stepwell.open_group({arguments})", "a group needs an id")
    refused(f"stepwell.open_group({group}, 60, 'p', {one}, _delays => '{{-1}}')", "delay must be")
    refused(f"stepwell.add_members({group}, {one})", "there is no group")
    refused(f"stepwell.seal_group({group})", "there is no group")
    assert call(f"stepwell.open_group({group}, 'infinity', 'p', {one})")
    refused(f"stepwell.open_group({group})", "there is a group")
    assert call(f"stepwell.add_members({group}, '{{t}}', '{{}}')") == 0
    assert call(f"stepwell.add_members({group}, {one})") == 1
    # A member that ends before the group is sealed cannot end it.
    assert call(f"cancelled from stepwell.cancel_group({group})") == 1
    assert call(f"ended from stepwell.group_progress({group})") is False
    assert call("promoted from stepwell.promote()") == 0
    assert call(f"finished_at from stepwell.job_group where id = {group}") is None
    assert call(f"stepwell.add_members({group}, {one})") == 1
    assert call(f"stepwell.seal_group({group})") == 2
    refused(f"stepwell.seal_group({group})", "it is sealed already")
    refused(f"stepwell.add_members({group}, {one})", "it takes no more members")
    assert call(f"ended from stepwell.group_progress({group})") is False
    assert call(f"cancelled from stepwell.cancel_group({group}, _limit => 1)") == 1
    assert call(f"ended from stepwell.group_progress({group})") is True
    call("promoted from stepwell.promote()")
    assert call("args from stepwell.jobs where state = 'ready'")["p"]["cancelled"] == 2
    for limit in ("0", "-1", "null"):
        refused(f"stepwell.group_results({group}, null, {limit})", "_limit between")
        refused(f"stepwell.cancel_group({group}, null, null, {limit})", "_limit between")
    refused(f"stepwell.cancel_group({group}, repeat('x', 10001))", "reason")
