"""Children whose task a deploy has renamed: `@app.task(was=...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from deploying import deployed

from stepwell import App, Context, SyncContext, Worker

Version = Callable[[App], Any]


def send_mail(to: str) -> str:
    return f"a step for {to}"


def a_version(name: str, *was: str, sync: bool = False, batch: bool = False) -> Version:
    """Code whose task `parent` spawns a task of this name, and waits twice in between."""

    def version(app: App) -> Any:
        async def one(to: str) -> str:
            return to

        async def several(to: list[str]) -> list[str]:
            return to

        mail: Any = app.task(name=name, was=was, batch=2)(several) if batch else app.task(name=name, was=was)(one)

        if sync:

            @app.task(name="parent")
            def sync_parent(ctx: SyncContext) -> list[str]:
                own = ctx.step(send_mail, "Ada", key="own")
                children = [ctx.spawn(mail, "first")]
                ctx.wait_for("deployed")
                children += ctx.spawn_many(mail, [mail.call("second"), mail.call("third")])
                ctx.wait_for("deployed")
                return [own, *ctx.gather(*children, lambda: ctx.spawn(mail, "in a branch").result())]

            return sync_parent

        @app.task(name="parent")
        async def parent(ctx: Context) -> list[str]:
            async def branch() -> Any:
                return await ctx.spawn(mail, "in a branch")

            own = await ctx.step(send_mail, "Ada")
            children = [ctx.spawn(mail, "first")]
            await ctx.wait_for("deployed")
            children += ctx.spawn_many(mail, [mail.call("second"), mail.call("third")])
            await ctx.wait_for("deployed")
            return [own, *await ctx.gather(*children, branch())]

        return parent

    return version


def spawned(conn: psycopg.Connection[Any]) -> list[str]:
    rows = conn.execute("select args ->> 'to' from stepwell.jobs where parent_id is not null order by 1")
    return [to for (to,) in rows]


async def check(dsn: str, conn: psycopg.Connection[Any], versions: Sequence[Version]) -> None:
    found = await deployed(dsn, *versions)
    assert found == ["a step for Ada", "first", "second", "third", "in a branch"]
    assert spawned(conn) == ["first", "in a branch", "second", "third"]


@pytest.mark.parametrize("sync", [False, True])
async def test_a_parent_finds_the_children_that_it_spawned_before_their_task_was_renamed(
    dsn: str, conn: psycopg.Connection[Any], sync: bool
) -> None:
    before, after = a_version("send_mail", sync=sync), a_version("send_letter", "send_mail", sync=sync)
    await check(dsn, conn, [before, before, after])


async def test_a_parent_finds_the_jobs_of_a_batch_task_that_was_renamed(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    await check(
        dsn, conn, [a_version("send_mail", batch=True)] * 2 + [a_version("send_letter", "send_mail", batch=True)]
    )


async def test_workers_of_the_old_and_the_new_code_find_each_others_children(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    before, after = a_version("send_mail"), a_version("send_letter", "send_mail")
    await check(dsn, conn, [after, before, after])


async def test_a_parent_finds_its_children_after_two_renames(dsn: str, conn: psycopg.Connection[Any]) -> None:
    names = ("send_mail", "send_letter", "send_post")
    await check(dsn, conn, [a_version(names[n], *names[:n]) for n in range(3)])


async def test_a_parent_finds_the_children_of_code_that_did_not_know_the_first_name(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    def version(*was: str) -> Version:
        def made(app: App) -> Any:
            @app.task(name="send_post", was=was)
            async def mail(to: str) -> str:
                return to

            @app.task
            async def parent(ctx: Context) -> list[str]:
                children = ctx.spawn_many(mail, [mail.call("first"), mail.call("second")])
                await ctx.wait_for("deployed")
                own = await ctx.step(lambda to: to, "Ada", key="send_post#3")
                return [*await ctx.gather(*children, ctx.spawn(mail, "third")), own]

            return parent

        return made

    assert await deployed(dsn, version(), version("send_mail")) == ["first", "second", "third", "Ada"]
    assert spawned(conn) == ["first", "second", "third"]


async def test_steps_with_the_first_name_of_the_task_do_not_hide_the_children_of_such_code(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    def version(*was: str) -> Version:
        def made(app: App) -> Any:
            @app.task(name="send_letter", was=was)
            async def mail(to: str) -> str:
                return to

            @app.task
            async def parent(ctx: Context) -> list[str]:
                first = ctx.spawn(mail, "first")
                own = await ctx.step(send_mail, "Ada")
                second = ctx.spawn(mail, "second")
                other = await ctx.step(send_mail, "Bob")
                await ctx.wait_for("deployed")
                return [own, other, *await ctx.gather(first, second, ctx.spawn(mail, "third"))]

            return parent

        return made

    found = await deployed(dsn, version(), version("send_mail"))
    assert found == ["a step for Ada", "a step for Bob", "first", "second", "third"]
    assert spawned(conn) == ["first", "second", "third"]


async def test_a_step_with_the_name_of_a_renamed_task_is_not_taken_for_its_child(app: App) -> None:
    @app.task(was="old")
    async def new() -> str:
        return "child"

    @app.task
    async def parent(ctx: Context) -> list[str]:
        own = await ctx.step(lambda: "step", key="new")
        child = await ctx.spawn(new)
        await ctx.sleep("1ms")
        return [own, child]

    async with Worker(app):
        job = await parent.aenqueue()
        assert await job.aresult(timeout="20s") == ["step", "child"]
        info = await job.ainfo()
    assert info is not None
    assert [(step.key, step.kind) for step in info.steps][:2] == [("new", "step"), ("old", "child")]
