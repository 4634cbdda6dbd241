"""Tasks and steps inside sessions of SQLAlchemy."""

from typing import assert_type

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from stepwell import App, Context, SyncContext


class Own(AsyncSession): ...


def declare(app: App, engine: Engine, async_engine: AsyncEngine) -> None:
    plain = sessionmaker(engine)
    sessions = async_sessionmaker(async_engine, class_=Own)

    @app.task(transaction=sessions)
    async def pay(ctx: Context, order_id: int) -> int:
        assert_type(ctx.session, AsyncSession)
        await ctx.session.flush()
        return order_id

    @app.task(transaction=plain, queue="slow")
    def refund(ctx: Context, order_id: int) -> None:
        assert_type(ctx.sync_session, Session)

    @app.task
    async def ship(ctx: Context) -> None:
        async with ctx.transaction("ship", sessions) as tx:
            assert_type(tx.session, Own)
        async with ctx.transaction("raw") as raw:
            await raw.execute("select 1")
            tx.save(1)

    @app.task
    def archive(ctx: SyncContext) -> None:
        with ctx.transaction("archive", plain) as tx:
            assert_type(tx.session, Session)

    async def use(session: AsyncSession) -> None:
        assert_type((await (await pay.using(connection=session).aenqueue(1)).aresult()), int)
        await (await ship.aenqueue()).acancel(connection=session)

    assert_type(refund.using(connection=plain()).enqueue(1).cancel(connection=plain()), bool)
    _ = use, archive
