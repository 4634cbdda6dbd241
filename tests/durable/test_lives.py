"""Random values are the same within one life of a job, and differ between its lives."""

from __future__ import annotations

import random
from uuid import UUID

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, Fail, JobFailed, Restart, Retry, SyncContext, Worker

ONCE = Retry(max_attempts=1)
SOON = Retry(max_attempts=3, initial="5ms", jitter=0)


async def test_each_restart_draws_other_values_and_each_attempt_the_same(app: App) -> None:
    seen: dict[int, set[tuple[UUID, float]]] = {}

    @app.task(retry=SOON)
    async def charge(ctx: Context, month: int = 1) -> int | Restart:
        seen.setdefault(month, set()).add((ctx.uuid(), ctx.random()))
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return month if month == 4 else Restart(month + 1)

    async with Worker(app):
        assert await (await charge.aenqueue()).aresult("10s") == 4
    assert [len(drawn) for drawn in seen.values()] == [1, 1, 1, 1]
    assert len({value for drawn in seen.values() for value in drawn}) == 4


async def test_a_restart_after_saved_steps_draws_other_values_also_in_branches(app: App) -> None:
    seen: list[list[UUID]] = []

    @app.task
    async def work(ctx: Context, rounds: int = 0) -> int | Restart:
        async def branch() -> UUID:
            token = ctx.uuid()
            await ctx.step(str, "saved")
            return token

        seen.append(list(await ctx.gather(branch(), branch())))
        return rounds if rounds == 2 else Restart(rounds + 1)

    async with Worker(app):
        assert await (await work.aenqueue()).aresult("10s") == 2
    assert len({token for tokens in seen for token in tokens}) == len({str(tokens) for tokens in seen}) * 2 == 6


async def test_a_retry_after_an_undo_draws_other_values(app: App) -> None:
    tokens: list[UUID] = []

    def pay(token: UUID) -> str:
        if token not in tokens:
            tokens.append(token)
        return str(token)

    @app.task(retry=ONCE)
    def buy(ctx: SyncContext) -> str:
        paid = ctx.step(pay, ctx.uuid(), undo=lambda: None)
        if len(tokens) < 3:
            raise Fail("sold out")
        return paid

    async with Worker(app):
        job = await buy.aenqueue()
        for _ in range(2):
            with pytest.raises(JobFailed, match="sold out"):
                await job.aresult("10s")
            await job.aretry()
        assert await job.aresult("10s") == str(tokens[2])
    assert len(set(tokens)) == 3


async def test_a_retry_draws_the_same_values_and_one_from_the_start_others(app: App) -> None:
    seen: list[UUID] = []

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        seen.append(ctx.uuid())
        raise Fail("no")

    async with Worker(app):
        job = await work.aenqueue()
        for from_start in (False, True, False, True):
            with pytest.raises(JobFailed):
                await job.aresult("10s")
            await job.aretry(from_start=from_start)
        with pytest.raises(JobFailed):
            await job.aresult("10s")
    assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4] != seen[0]


async def test_a_cancelled_job_keeps_count_of_its_lives(app: App, conn: psycopg.Connection[object]) -> None:
    seen: list[UUID] = []

    @app.task
    async def work(ctx: Context, rounds: int = 0) -> Restart | None:
        token = ctx.uuid()
        if token not in seen:
            seen.append(token)
        if rounds == 1:
            await ctx.sleep("1h")
        return Restart(rounds + 1) if rounds == 0 else None

    async def sleeps() -> bool:
        info = await job.ainfo()
        return info is not None and info.state == "waiting"

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(sleeps)
        await job.acancel()
        assert conn.execute("select life from stepwell.history").fetchone() == (1,)
        await job.aretry()
        await auntil(sleeps)
    assert len(seen) == 2


async def test_the_first_life_draws_what_it_drew_before_there_were_several(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> tuple[str, float, str]:
        return str(ctx.uuid()), ctx.random(), str(ctx.uuid())

    async with Worker(app):
        job = await work.aenqueue()
        one, drawn, two = await job.aresult("10s")

    def chance(key: str) -> random.Random:
        return random.Random(f"{job.id}/{key}")

    assert one == str(UUID(int=chance("uuid").getrandbits(128), version=4))
    assert two == str(UUID(int=chance("uuid#2").getrandbits(128), version=4))
    assert drawn == chance("random").random()


@pytest.mark.counts_runs
async def test_a_restart_keeps_the_job_its_options_signals_and_failures_and_forgets_its_steps(
    app: App, conn: psycopg.Connection[object]
) -> None:
    undone: list[str] = []
    runs: list[tuple[int, int]] = []

    async def save(word: str) -> str:
        return word

    @app.task(queue="elsewhere")
    async def child() -> None: ...

    @app.task(retry=SOON)
    async def work(ctx: Context, rounds: int = 0) -> Restart:
        runs.append((ctx.attempt, ctx.epoch))
        if rounds == 1:
            got = [(await ctx.wait_for("news", timeout=0)).value, (await ctx.receive("note", timeout=0)).value]
            assert got == ["second", "unread"]
            assert ctx.metadata == {"tenant": "a"}
            assert not (await work.using(unique="one").aenqueue()).inserted
            raise Fail("enough")
        await ctx.step(save, "kept no longer", undo=undone.append)
        if ctx.epoch == 1:
            raise ConnectionError("once")
        ctx.spawn(child)
        assert (await ctx.wait_for("news")).value == "first"
        assert (await ctx.receive("note")).value == "read"
        return Restart(1)

    for word in ("first", "second"):
        await app.aemit("news", value=word)
    options = work.using(priority=7, metadata={"tenant": "a"}, max_attempts=5, keep_failed="2h", unique="one")
    job = await options.aenqueue()
    for word in ("read", "unread"):
        await job.asend("note", word)
    async with Worker(app, queues=["default"]):
        with pytest.raises(JobFailed, match="enough"):
            await job.aresult("10s")
        info = await job.ainfo()
    assert info is not None
    # Attempts begin anew, epochs go on.
    attempts, epochs = zip(*runs, strict=True)
    assert (attempts[-1], list(epochs)) == (1, sorted(set(epochs)))
    assert (info.priority, info.queue, info.max_attempts) == (7, "default", 5)
    assert info.policy is not None
    assert info.policy["keep_failed"] == 7200
    assert [failure.type for failure in info.failures] == ["ConnectionError", "stepwell.Fail"]
    assert [step.kind for step in info.steps if step.kind == "step"] == []
    # Nothing of an earlier life is undone; but its children that still live are cancelled with the job.
    assert undone == []
    assert conn.execute("select state::text from stepwell.jobs where parent_id = %s", (job.id,)).fetchall() == [
        ("cancelled",)
    ]
