"""The rights of a kind are enough for what it is for: real workers and producers under roles that have no others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from stepwell import App, Context, Worker
from stepwell.errors import DatabaseError
from stepwell.postgres import hints as advice
from stepwell.postgres import rights
from stepwell.postgres.rights import RoleKind


@pytest.fixture
def dsns(dsn: str, conn: psycopg.Connection[Any]) -> Generator[dict[RoleKind, str]]:
    """Where each kind of role connects."""
    named: dict[RoleKind, str] = {kind: f"r{uuid4().hex[:12]}" for kind in rights.KINDS}
    for kind, name in named.items():
        conn.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        rights.grant(conn, name, [kind])
    yield {kind: make_conninfo(dsn, options=f"-c role={name}") for kind, name in named.items()}
    for name in named.values():
        conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def register(app: App) -> Any:
    """The tasks of the shop, as its producers and its workers have them."""

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def order(ctx: Context, n: int) -> list[Any]:
        text = await ctx.step(large)
        ctx.progress(1, 2)
        children = await ctx.gather(*(ctx.spawn(double, k) for k in range(n)))
        event = await ctx.wait_for("paid", timeout="20s")
        await ctx.sleep("1.1s")
        async with ctx.transaction("noted") as tx:
            await tx.execute("select 1")
        alone = await (await double.aenqueue(21)).aresult(timeout="20s")
        return [len(text), children, event.value, alone]

    @app.schedule(timedelta(seconds=1))
    @app.task
    async def tick() -> None:
        pass

    return order


async def large() -> str:
    return "x" * 100_000


async def test_each_kind_of_role_can_do_its_part(dsns: dict[RoleKind, str]) -> None:
    async with (
        App(dsns["worker"], name="shop") as working,
        App(dsns["producer"], name="shop") as producing,
        App(dsns["viewer"], name="shop") as viewing,
        App(dsns["operator"], name="shop") as operating,
    ):
        register(working)
        order = register(producing)
        async with Worker(working, poll="100ms"):
            job = await order.aenqueue(3)
            await producing.aemit("paid", value=7)
            assert await job.aresult(timeout="20s") == [100_000, [0, 2, 4], 7, 42]
            seen = await viewing.job(job.id).ainfo()
            assert seen is not None
            assert seen.state == "succeeded"
            assert [each.name for each in await viewing.aschedules()] == ["tick"]

            await operating.apause(queue="default")
            await operating.aresume(queue="default")
            waiting = await order.aenqueue(1)
            await operating.job(waiting.id).acancel()
            await operating.schedule_named("tick").apause()

        for refused, kind in (
            (viewing.apause(queue="default"), "operator"),
            (producing.job(job.id).ainfo(), "viewer"),
            (producing.job(job.id).acancel(), "operator"),
            (operating.aemit("paid"), "producer"),
        ):
            with pytest.raises(DatabaseError, match=rf"^role 'r\w+' may not .* \"stepwell grant r\w+ --as {kind}\"$"):
                await refused


async def test_a_producer_that_would_run_jobs_is_told_who_allows_it(dsns: dict[RoleKind, str]) -> None:
    async with App(dsns["producer"]) as app:
        register(app)
        with pytest.raises(DatabaseError, match=r"may not call stepwell\.register_worker .* --as worker\"$"):
            async with Worker(app):
                pass


async def test_a_worker_whose_role_is_revoked_ends_and_names_the_role(
    dsns: dict[RoleKind, str], conn: psycopg.Connection[Any]
) -> None:
    async with App(dsns["worker"]) as app:
        register(app)
        role = conninfo_to_dict(dsns["worker"])["options"]
        assert isinstance(role, str)
        role = role.removeprefix("-c role=")
        worker = Worker(app, poll="100ms", renew="100ms")
        running = asyncio.create_task(worker.run())
        await worker.started()
        rights.revoke(conn, role)
        # Where the statement was prepared before, Postgres does not say which function it was about.
        said = rf"^role '{role}' may not .* \"stepwell grant {role} --as (worker\"$|KIND\", where KIND is )"
        with pytest.raises(DatabaseError, match=said):
            await asyncio.wait_for(running, 20)


def test_the_smallest_kind_that_has_a_right_is_advised(conn: psycopg.Connection[Any]) -> None:
    granted = conn.execute("select name, object, array_agg(kind) from stepwell.privilege group by 1, 2").fetchall()
    listed = {name: (what, kinds) for name, what, kinds in granted if kinds != ["everybody"]}
    known = advice.rights()
    assert set(known) == set(listed)
    for name, (what, kind) in known.items():
        assert what == listed[name][0]
        assert kind in listed[name][1]
    assert [known[name][1] for name in ("enqueue", "large_value", "jobs", "cancel", "claim")] == [
        "producer",
        "viewer",
        "viewer",
        "operator",
        "worker",
    ]
