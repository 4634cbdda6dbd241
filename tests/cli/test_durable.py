"""What the command line shows of durable jobs, and what it can tell them."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from cli.commands import Ran, Run
from waiting import auntil

from stepwell import App, Context, Fail, JobFailed, JobHandle, JobInfo, Retry, Worker
from stepwell.values.duration import local_time


async def ended(job: JobHandle[Any]) -> JobInfo:
    with contextlib.suppress(JobFailed):
        await job.aresult(timeout="20s")
    found = await job.ainfo()
    assert found is not None
    return found


async def waiting(job: JobHandle[Any], key: str = "wait:paid:a") -> None:
    """Until the job is suspended at that step."""

    async def waits() -> bool:
        found = await job.ainfo()
        return (
            found is not None
            and found.state == "waiting"
            and any(step.key == key and step.pending for step in found.steps)
        )

    await auntil(waits)


def line(ran: Ran, key: str) -> list[str]:
    """The cells of a step's line."""
    assert (ran.code, ran.err) == (0, "")
    return next(line.split() for line in ran.out.splitlines() if line.split()[:1] == [key])


async def reserve(sku: str) -> str:
    return f"hold-{sku}"


async def release(hold: str) -> None:
    assert hold == "hold-a"


async def refuse(_: str) -> None:
    raise ValueError("card refused")


def tasks(app: App) -> tuple[Any, Any]:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task(retry=Retry(max_attempts=1))
    async def order(ctx: Context, sku: str, declined: bool = False) -> int:
        hold = await ctx.step(reserve, sku, undo=release if declined else None)
        doubled = await ctx.spawn(double, 4)
        if declined:
            await ctx.step(refuse, hold, retry=Retry(max_attempts=1))
        paid = await ctx.wait_for("paid", key=sku, timeout="1h")
        note = await ctx.receive("note", timeout="1h")
        return doubled + paid.value + len(note.value)

    return order, double


async def test_the_steps_of_a_job_are_shown_while_it_waits_and_when_it_has_ended(run: Run, app: App) -> None:
    order, _ = tasks(app)
    async with Worker(app):
        job = await order.aenqueue("a")
        await waiting(job)
        shown = run("jobs", "show", str(job.id))
        assert line(shown, "reserve")[1:3] == ["step", "done"]
        assert '"hold-a"' in line(shown, "reserve")
        assert line(shown, "wait:paid:a")[1:3] == ["wait", "pending"]
        found = await job.ainfo()
        assert found is not None
        assert str(found.steps[1].child_id) in line(shown, "double")
        child = run("jobs", "show", str(found.steps[1].child_id))
        assert f"parent       {job.id}" in child.out

        assert run("emit", "paid", "-k", "a", "--value", "30").out == "emitted 'paid' with key 'a', kept for 30d\n"
        await waiting(job, "receive:note")
        assert run("jobs", "send", str(job.id), "note", "--value", '"four"').out == f"sent 'note' to {job.id}\n"
        assert await job.aresult(timeout="20s") == 42
    shown = run("jobs", "show", str(job.id))
    *step, took, value = line(shown, "receive:note")
    assert (step, value) == (["receive:note", "receive", "done"], '"four"')
    assert took.endswith("s")
    as_json = run("jobs", "show", str(job.id), "--json").json
    assert [step["key"] for step in as_json["steps"]] == ["reserve", "double", "wait:paid:a", "receive:note"]
    assert "steps" not in run("jobs", "list", "--json").json[0]


async def test_a_failed_step_and_what_was_undone_are_shown(run: Run, app: App) -> None:
    order, _ = tasks(app)
    async with Worker(app):
        job = await order.aenqueue("a", declined=True)
        assert (await ended(job)).state == "failed"
    shown = run("jobs", "show", str(job.id))
    assert line(shown, "refuse")[1:] == ["step", "failed", "ValueError:", "card", "refused"]
    assert line(shown, "undo:reserve")[1:3] == ["undo", "done"]


async def test_a_wait_that_was_given_up_says_so_and_a_long_value_is_cut(run: Run, app: App) -> None:
    @app.task
    async def patient(ctx: Context) -> None:
        await ctx.step(lambda: "x" * 1000, key="long")
        await ctx.step(lambda: "x" * 100_000, key="large")
        await ctx.wait_for("never", timeout="1ms")

    async with Worker(app):
        job = await patient.aenqueue()
        await job.aresult(timeout="20s")
    shown = run("jobs", "show", str(job.id))
    assert line(shown, "wait:never")[1:4] == ["wait", "timed", "out"]
    assert max(len(line) for line in shown.out.splitlines()) < 200
    assert line(shown, "large")[-3:] == ["(over", "64", "kB)"]


async def test_a_chain_is_shown_with_where_it_stands_and_goes_back_to_a_step(run: Run, app: App) -> None:
    full = [True]

    async def fetch(n: int) -> int:
        return n + 1

    async def store(n: int) -> int:
        if full:
            full.clear()
            raise Fail("disk full")
        return n

    chain = app.chain("ingest", fetch, store)
    async with Worker(app):
        job = await chain.aenqueue(1)
        assert (await ended(job)).cursor == "store"
        shown = run("jobs", "show", str(job.id))
        assert "at step      store" in shown.out
        assert line(shown, "step")[-1] == "input"
        assert line(shown, "fetch")[1:3] == ["state", "done"]
        assert line(shown, "store")[1:3] == ["state", "failed"]
        assert run("jobs", "retry", str(job.id), "--step", "store").out == f"{job.id} is ready to run again\n"
        assert await job.aresult(timeout="20s") == 2
    assert line(run("jobs", "show", str(job.id)), "store")[1:3] == ["state", "done"]


async def test_a_chain_is_resumed_at_any_step_with_an_input(run: Run, app: App) -> None:
    async def fetch(n: int) -> int:
        raise Fail("no such host")

    async def store(n: int) -> int:
        return n

    chain = app.chain("ingest", fetch, store)
    async with Worker(app):
        job = await chain.aenqueue(1)
        await ended(job)
        ran = run("jobs", "retry", str(job.id), "--step", "store", "--input", "42")
        assert (ran.code, ran.out) == (0, f"{job.id} is ready to run again\n")
        assert "has not reached a step 'store' yet" in ran.err
        assert await job.aresult(timeout="20s") == 42
    assert line(run("jobs", "show", str(job.id)), "store")[1:] == ["state", "done", "42"]


async def test_a_mistyped_step_is_refused_unless_yes_is_said(run: Run, app: App) -> None:
    async def fetch(n: int) -> int:
        return n

    async def store(n: int) -> int:
        raise Fail("full")

    chain = app.chain("ingest", fetch, store)
    async with Worker(app):
        job = await chain.aenqueue(1)
        await ended(job)
    typed = ("jobs", "retry", str(job.id), "--step", "stroe", "--input", "42")
    ran = run(*typed)
    assert (ran.code, ran.out) == (1, "")
    assert "has not reached a step 'stroe': did you mean 'store'?" in ran.err
    assert run(*typed, "--yes").code == 0


async def test_a_job_goes_back_to_a_step_or_to_the_start(run: Run, app: App) -> None:
    order, _ = tasks(app)
    async with Worker(app):
        job = await order.aenqueue("a")
        await waiting(job)
        await job.acancel()
    assert run("jobs", "retry", str(job.id), "--step", "wait:paid:a").code == 0
    assert [step["key"] for step in run("jobs", "show", str(job.id), "--json").json["steps"]] == ["reserve", "double"]
    await job.acancel()
    assert run("jobs", "retry", "--state", "cancelled", "--from-start", "-y").out == "retried 1 job\n"
    assert run("jobs", "show", str(job.id), "--json").json["steps"] == []


async def test_a_step_that_is_not_there_is_refused_with_those_that_are(run: Run, app: App) -> None:
    order, double = tasks(app)
    async with Worker(app):
        job = await order.aenqueue("a")
        await waiting(job)
        plain = await double.aenqueue(1)
        await plain.aresult(timeout="20s")
    has = "has no step 'nothing': it has reserve, double, wait:paid:a"
    ran = run("jobs", "fork", str(job.id), "--step", "nothing")
    assert (ran.code, ran.out, ran.err) == (1, "", f"stepwell: job {job.id} {has}\n")
    ran = run("jobs", "retry", str(job.id), "--step", "wait:paid:a")
    assert (ran.code, ran.out.endswith(": nothing to retry\n")) == (1, True)
    await job.acancel()
    ran = run("jobs", "retry", str(job.id), str(plain.id), "--step", "nothing")
    assert ran.code == 1
    assert ran.out == f"{job.id} {has}\n{plain.id} has already succeeded: nothing to retry\n"
    ran = run("jobs", "fork", str(plain.id), "--step", "nothing")
    assert "has no step 'nothing', because it has saved none" in ran.err


async def test_a_fork_begins_with_what_was_before_the_step(run: Run, app: App) -> None:
    order, _ = tasks(app)
    async with Worker(app):
        job = await order.aenqueue("a")
        await waiting(job)
    ran = run("jobs", "fork", str(job.id), "--step", "wait:paid:a")
    assert (ran.code, ran.err) == (0, "")
    shown = run("jobs", "show", ran.out.strip())
    assert f"forked from  {job.id}" in shown.out
    assert "wait:paid:a" not in shown.out


async def test_cancelling_what_has_steps_to_undo_says_so(run: Run, app: App) -> None:
    @app.task
    async def held(ctx: Context) -> None:
        await ctx.step(reserve, "a", undo=release)
        await ctx.wait_for("never")

    async with Worker(app):
        job, other = await held.aenqueue(), await held.aenqueue()
        await waiting(job, "wait:never")
        await waiting(other, "wait:never")
    ran = run("jobs", "cancel", str(job.id))
    assert (ran.code, ran.out) == (0, f"{job.id} undoes its steps and is then cancelled\n")
    assert "ready, undoing its steps" in run("jobs", "show", str(job.id)).out
    assert run("jobs", "cancel", "--task", "held", "-y").out == "cancelled 0 jobs; 1 undo their steps first\n"


async def test_only_a_live_job_can_be_sent_something(run: Run, app: App) -> None:
    _, double = tasks(app)
    async with Worker(app):
        job = await double.aenqueue(1)
        await job.aresult(timeout="20s")
    ran = run("jobs", "send", str(job.id), "note")
    assert (ran.code, ran.out) == (1, "")
    assert f"job {job.id} is succeeded" in ran.err
    absent = uuid.uuid4()
    assert f"there is no job {absent}" in run("jobs", "send", str(absent), "note").err
    assert f"there is no job {absent}" in run("jobs", "fork", str(absent), "--step", "a").err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("emit", "paid", "--value", "{x"), "--value is not JSON"),
        (("emit", "paid", "--value", '"\\u0000"'), "NUL"),
        (("emit", "paid", "--value", "[" * 5000), "--value"),
        (("emit", "paid", "--keep", "soon"), "--keep is 'soon'"),
        (("emit", "paid", "--key", ""), "--key is ''"),
        (("emit", "x" * 201), "NAME is"),
        (("jobs", "send", "nonsense", "note"), "not a job's id"),
        (("jobs", "send", str(uuid.uuid4()), ""), "NAME is ''"),
        (("jobs", "fork", str(uuid.uuid4())), "--step"),
        (("jobs", "retry", "--all", "--step", "a"), "--step needs the ids of jobs"),
        (("jobs", "retry", str(uuid.uuid4()), "--step", "a", "--from-start"), "cannot be combined"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(run: Run, argv: tuple[str, ...], said: str) -> None:
    ran = run(*argv)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


async def test_a_job_that_waits_says_for_what_and_which_command_ends_it(run: Run, app: App) -> None:
    @app.task
    async def late(ctx: Context) -> None:
        paid, sent = ctx.wait_for("paid", key="a b"), ctx.wait_for("sent")
        await ctx.gather(paid, sent, ctx.receive("go"), ctx.sleep("1h"), ctx.spawn(tick))

    @app.task
    async def tick(ctx: Context) -> None:
        await ctx.wait_for("never")

    async with Worker(app):
        job = await late.aenqueue()
        await waiting(job, "gather[3]/sleep")
    info = await job.ainfo()
    assert info is not None
    [child] = [step.child_id for step in info.steps if step.child_id]
    [nap] = [step for step in info.steps if step.kind == "sleep"]
    waits = [
        "event 'paid', key 'a b' (\"stepwell emit paid --key 'a b'\")",
        "event 'sent' (\"stepwell emit sent\")",
        f"signal 'go' (\"stepwell jobs send {job.id} go\")",
        f"{nap.key!r} until {local_time(nap.until)}",
        f"child {child}",
    ]
    shown = run("jobs", "show", str(job.id)).out
    assert "state        waiting\nwaits for    " in shown
    assert all(wait in shown for wait in waits)
    for verb in ("retry", "run"):
        ran = run("jobs", verb, str(job.id))
        assert ran.code == 1
        assert ran.out.startswith(f"{job.id} is waiting for ")
        assert ran.out.endswith(f": nothing to {verb}\n")
        assert all(wait in ran.out for wait in waits)
