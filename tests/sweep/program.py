"""What the sweep's workers run: an example of each kind of step, and an interpreter of programs that are plain data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stepwell import App, Context, Done, Fail, JobFailed, Next, Restart, Retry, Step, SyncContext

app = App(name="sweep", drift="fail", pool_size=4, retry=Retry(max_attempts=5, initial="2s"))

_LOG = "insert into sweep.effect (root, kind, what) values (%s, %s, %s)"
_TRIES = "select count(*) from sweep.effect where root = %s and kind = 'do' and what = %s"


async def do(root: str, what: str, value: Any = None) -> Any:
    """An effect outside, which a crash may repeat."""
    async with app.database.aconnection() as connection:
        await connection.execute(_LOG, (root, "do", what))
    return value


def do_plain(root: str, what: str, value: Any = None) -> Any:
    with app.database.connection() as connection:
        connection.execute(_LOG, (root, "do", what))
    return value


async def do_late(root: str, what: str, times: int, value: Any = None) -> Any:
    """Fails so many times first."""
    await do(root, what)
    async with app.database.aconnection() as connection:
        row = await (await connection.execute(_TRIES, (root, what))).fetchone()
    if row is None or row[0] <= times:
        raise ValueError(f"{what} fails")
    return value


async def do_wrong(root: str, what: str) -> None:
    await do(root, what)
    raise ValueError(f"{what} fails")


async def undo(done: list[str]) -> None:
    root, what = done
    async with app.database.aconnection() as connection:
        await connection.execute(_LOG, (root, "undo", what))


async def undo_beside(done: list[str]) -> None:
    """In no order with what another job undoes."""
    await do(*done)


async def same(number: float) -> float:
    return number


# The examples.


@app.task
async def steps(ctx: Context, start: int) -> list[int]:
    first = await ctx.step(do, ctx.id, "first", start)
    second = await ctx.step(do_plain, ctx.id, "second", first + 1)
    third = await ctx.step(do, ctx.id, "third", second + 1)
    return [first, second, third]


@app.task
async def retried(ctx: Context) -> str:
    quick = Retry(max_attempts=4, initial="1ms")
    slow = Retry(max_attempts=4, initial="1m")
    one = await ctx.step(do_late, ctx.id, "quick", 2, "a", key="quick", retry=quick)
    return one + await ctx.step(do_late, ctx.id, "slow", 2, "b", key="slow", retry=slow)


@app.task
async def paid(ctx: Context) -> list[int]:
    async with ctx.transaction("pay") as tx:
        await tx.execute(_LOG, (ctx.id, "tx", "pay"))
        tx.save(7)
    await ctx.step(do, ctx.id, "between")
    async with ctx.transaction("again") as again:
        await again.execute(_LOG, (ctx.id, "tx", "again"))
        again.save(8)
    return [tx.value, again.value]


@app.task(transaction=True)
async def whole(ctx: Context) -> int:
    await ctx.connection.execute(_LOG, (ctx.id, "tx", "whole"))
    return 1


@app.task
async def slept(ctx: Context) -> list[float]:
    times = [await ctx.now()]
    for delay in ("10ms", "3s", "30d"):
        await ctx.sleep(delay)
        times.append(await ctx.now())
    await ctx.step(do, ctx.id, "rested")
    return [round((later - sooner).total_seconds()) for sooner, later in pairwise(times)]


@app.task
async def waited(ctx: Context) -> list[Any]:
    early = await ctx.wait_for("early")
    async with ctx.transaction("own") as tx:
        await app.aemit("own", key=ctx.id, value="own", connection=tx.connection)
    own = await ctx.wait_for("own", key=ctx.id)
    one = await ctx.wait_for("late", key=ctx.id)
    await ctx.step(do, ctx.id, "between")
    two = await ctx.wait_for("late", key=ctx.id)
    never = await ctx.wait_for("never", timeout="1h")
    return [early.value, own.value, one.value, two.value, never.timed_out]


@app.task
async def received(ctx: Context) -> list[Any]:
    values = [(await ctx.receive("word")).value for _ in range(3)]
    nothing = await ctx.receive("nothing", timeout="1d")
    return [*values, nothing.timed_out]


@app.task
async def leaf(ctx: Context, root: str, number: int) -> int:
    await ctx.step(do, root, f"leaf {number}")
    if number < 0:
        raise Fail(f"leaf {number}")
    return number * 10


@app.task
async def family(ctx: Context) -> list[Any]:
    alone = await ctx.spawn(leaf, ctx.id, 1)
    many = await ctx.gather(*ctx.spawn_many(leaf, [{"root": ctx.id, "number": n} for n in (2, 3, 4)]))
    both = await ctx.gather(ctx.spawn(leaf, ctx.id, 5), ctx.step(do, ctx.id, "beside", 6))
    try:
        await ctx.spawn(leaf, ctx.id, -1)
    except JobFailed as error:
        return [alone, many, both, error.type]
    return []


async def visit(ctx: Context, item: str) -> str:
    one = await ctx.step(do, ctx.id, f"visit {item}", item)
    await ctx.sleep("2s")
    return one + str(await ctx.step(do, ctx.id, f"leave {item}", "."))


@app.task
async def mapped(ctx: Context) -> list[Any]:
    return [await ctx.map(visit, ["a", "b", "c"], limit=2), await ctx.map(double, [1, 2, 3])]


async def double(number: int) -> int:
    return number * 2


@app.task
async def raced(ctx: Context) -> list[Any]:
    sooner = await ctx.first(ctx.sleep("9d"), ctx.step(do, ctx.id, "won", "won"), ctx.spawn(sleeper, ctx.id))
    later = await ctx.first(ctx.sleep("1d"), ctx.wait_for("never"))
    return [sooner.branch, sooner.value, later.branch]


@app.task
async def sleeper(ctx: Context, root: str, days: int = 5) -> None:
    """Does something only if nobody cancels it."""
    await ctx.sleep(f"{days}d")
    await ctx.step(do, root, "overslept")


@app.task
async def undone(ctx: Context) -> None:
    await ctx.step(do, ctx.id, "hotel", [ctx.id, "hotel"], key="hotel", undo=undo)
    await ctx.step(do, ctx.id, "flight", [ctx.id, "flight"], key="flight", undo=undo)
    await ctx.sleep("1h")
    await ctx.step(do, ctx.id, "car", [ctx.id, "car"], key="car", undo=undo)
    raise Fail("no seats")


@app.task
async def cancelled(ctx: Context) -> None:
    """Cancelled by who answers, with a child that waits: both are undone."""
    await ctx.step(do, ctx.id, "hotel", [ctx.id, "hotel"], key="hotel", undo=undo)
    child = ctx.spawn(cancelled_child, ctx.id)
    await ctx.step(do, ctx.id, "flight", [ctx.id, "flight"], key="flight", undo=undo)
    await child


@app.task
async def cancelled_child(ctx: Context, root: str) -> None:
    await ctx.step(do, root, "child", [root, "child undone"], undo=undo_beside)
    await ctx.wait_for("cancel", key=root)


@app.task
async def large(ctx: Context) -> list[int]:
    stepped = await ctx.step(do, ctx.id, "step", "s" * 70_000)
    async with ctx.transaction("pay") as tx:
        await tx.execute(_LOG, (ctx.id, "tx", "pay"))
        tx.save("t" * 80_000)
    child = await ctx.spawn(large_child)
    await ctx.sleep("1d")
    return [len(stepped), len(tx.value), len(child)]


@app.task
async def large_child() -> str:
    return "c" * 90_000


@app.task
async def restarted(ctx: Context, left: int) -> str | Restart:
    async with ctx.transaction("round") as tx:
        await tx.execute(_LOG, (ctx.id, "tx", f"round {left}"))
    await ctx.step(do, ctx.id, f"left {left}")
    return Restart(left - 1) if left else "done"


@app.task
def plain(ctx: SyncContext) -> list[Any]:
    one = ctx.step(do_plain, ctx.id, "one", 1)
    with ctx.transaction("pay") as tx:
        tx.execute(_LOG, (ctx.id, "tx", "pay"))
        tx.save("paid")
    ctx.sleep("2h")
    word = ctx.wait_for("late", key=ctx.id).value
    child = ctx.spawn(leaf, ctx.id, 3).result()
    both = ctx.gather(lambda: ctx.step(do_plain, ctx.id, "x", 4), lambda: ctx.step(do_plain, ctx.id, "y", 5))
    return [one, tx.value, word, child, both]


async def fetch(ctx: Context) -> str:
    await do(ctx.id, "fetch")
    return ctx.id


async def parse(root: str) -> Next[str]:
    await do(root, "parse")
    return Next(root, after="1h")


def store(root: str) -> int:
    do_plain(root, "store")
    return 3


app.chain("chain", fetch, Step(parse, retry=Retry(max_attempts=9)), Step(store, queue="elsewhere"))
machine = app.machine("machine")


@machine.state(start=True)
@dataclass
class Count:
    number: int = 0

    async def run(self, ctx: Context) -> Next[Count] | Next[Rest]:
        await do(ctx.id, f"count {self.number}")
        return Next(Count(self.number + 1)) if self.number < 3 else Next(Rest(self.number), after="3d")


@machine.state
@dataclass
class Rest:
    counted: int

    async def run(self, ctx: Context) -> Done[str]:
        await do(ctx.id, "rest")
        return Done(f"counted {self.counted}")


# The interpreter: what a list of operations does, and the trace of what came of each. `oracle.py` says what it must be.


class Stumble(Exception):
    """Fails an attempt, not the job."""


# What fails for good does so at once: so a crash never costs the last attempt, and the error is always its own.
@app.task(retry=Retry(max_attempts=9, initial="1m", never_on=(ValueError, JobFailed)))
async def interpret(ctx: Context, ops: list[Any], path: str = "", root: str | None = None) -> list[Any]:
    return await _run(ctx, ops, path, root or ctx.id)


async def _run(ctx: Context, ops: list[Any], path: str, root: str) -> list[Any]:
    trace: list[Any] = []
    for place, (name, *given) in enumerate(ops):
        trace.append(await _OPS[name](ctx, f"{path}/{place}", root, *given))
    return trace


async def _step(ctx: Context, path: str, root: str, value: Any) -> Any:
    return await ctx.step(do, root, path, value)


async def _plain(ctx: Context, path: str, root: str, value: Any) -> Any:
    return await ctx.step(do_plain, root, path, value)


async def _late(ctx: Context, path: str, root: str, times: int, pause: str) -> Any:
    return await ctx.step(do_late, root, path, times, "late", retry=Retry(max_attempts=times + 2, initial=pause))


async def _wrong(ctx: Context, path: str, root: str, attempts: int, pause: str) -> Any:
    await ctx.step(do_wrong, root, path, retry=Retry(max_attempts=attempts, initial=pause) if attempts else None)


async def _undoable(ctx: Context, path: str, root: str) -> Any:
    return (await ctx.step(do, root, path, [root, path], undo=undo))[1]


async def _pay(ctx: Context, path: str, root: str, value: Any) -> Any:
    async with ctx.transaction(f"tx{path}") as tx:
        await tx.execute(_LOG, (root, "tx", path))
        tx.save(value)
    return tx.value


async def _stumble(ctx: Context, _path: str, _root: str) -> Any:
    if ctx.attempt == 1:
        raise Stumble
    return "stood up"


async def _overdraw(ctx: Context, path: str, root: str) -> Any:
    async with ctx.transaction(f"tx{path}") as tx:
        await tx.execute(_LOG, (root, "tx", path))
        raise ValueError(f"{path} is rolled back")


async def _sleep(ctx: Context, _path: str, _root: str, length: float) -> Any:
    await ctx.sleep(length)
    return "slept"


async def _wait(ctx: Context, _path: str, _root: str, event: str) -> Any:
    return (await ctx.wait_for(event, key=ctx.id)).value


async def _receive(ctx: Context, _path: str, _root: str, name: str) -> Any:
    return (await ctx.receive(name)).value


async def _time_out(ctx: Context, _path: str, _root: str) -> Any:
    return (await ctx.wait_for("never", key=ctx.id, timeout="1h")).timed_out


async def _own(ctx: Context, path: str, _root: str) -> Any:
    async with ctx.transaction(f"own{path}") as tx:
        await app.aemit(f"own{path}", key=ctx.id, value=path, connection=tx.connection)
    return (await ctx.wait_for(f"own{path}", key=ctx.id)).value


async def _child(ctx: Context, path: str, root: str, ops: list[Any]) -> Any:
    return await ctx.spawn(interpret, ops, path, root)


async def _children(ctx: Context, path: str, root: str, programs: list[Any]) -> Any:
    spawned = [ctx.spawn(interpret, ops, f"{path}.{n}", root) for n, ops in enumerate(programs)]
    ends = await ctx.gather(*spawned, return_exceptions=True)
    return ["failed" if isinstance(end, JobFailed) else end for end in ends]


async def _gather(ctx: Context, path: str, root: str, programs: list[Any]) -> Any:
    return await ctx.gather(*[_run(ctx, ops, f"{path}.{n}", root) for n, ops in enumerate(programs)])


async def _map(ctx: Context, path: str, root: str, items: list[int], limit: int | None) -> Any:
    async def item(ctx: Context, number: int) -> Any:
        one = await ctx.step(do, root, f"{path}.{number}", number)
        await ctx.sleep(number * 5)
        return one + await ctx.step(do, root, f"{path}.{number}b", 1)

    return await ctx.map(item, items, limit=limit)


async def _first(ctx: Context, path: str, root: str, ops: list[Any], *, child: bool) -> Any:
    loser = ctx.spawn(sleeper, root, 9000) if child else ctx.sleep("9000d")
    return list(await ctx.first(_run(ctx, ops, path, root), loser))


async def _chance(ctx: Context, _path: str, _root: str) -> Any:
    number = ctx.random()
    await ctx.step(same, number)  # fails should it be another in another run
    return 0 <= number < 1 and len(str(ctx.uuid())) == 36


async def _now(ctx: Context, _path: str, _root: str) -> Any:
    at = (await ctx.now()).timestamp()
    return await ctx.step(same, at) == at


async def _patched(ctx: Context, path: str, _root: str) -> Any:
    return ctx.patched(f"patch{path}")


async def _if(ctx: Context, path: str, root: str, value: int, yes: list[Any], no: list[Any]) -> Any:
    return await _run(ctx, yes if await ctx.step(do, root, path, value) else no, path, root)


async def _try(ctx: Context, path: str, root: str, ops: list[Any]) -> Any:
    try:
        return await _run(ctx, ops, path, root)
    except (ValueError, JobFailed) as error:
        return ["caught", isinstance(error, JobFailed)]


async def _first_branch(ctx: Context, path: str, root: str, ops: list[Any]) -> Any:
    return await _first(ctx, path, root, ops, child=False)


async def _first_child(ctx: Context, path: str, root: str, ops: list[Any]) -> Any:
    return await _first(ctx, path, root, ops, child=True)


_OPS: dict[str, Any] = {
    "step": _step, "plain": _plain, "late": _late, "wrong": _wrong, "undoable": _undoable, "pay": _pay,
    "stumble": _stumble, "overdraw": _overdraw, "sleep": _sleep, "wait": _wait, "receive": _receive,
    "time out": _time_out, "own": _own, "child": _child, "children": _children, "gather": _gather, "map": _map,
    "first": _first_branch, "first child": _first_child, "chance": _chance, "now": _now, "patched": _patched,
    "if": _if, "try": _try,
}  # fmt: skip
