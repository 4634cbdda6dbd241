"""The worker of `program.py` with tasks that run inside sessions of SQLAlchemy, over several drivers."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Any

from ledger import Ledger
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from stepwell import App, Context

# Another module of this name hides it from type checkers.
program: Any = importlib.import_module("program")
app: App = program.app
ledger: Ledger = program.ledger

_EFFECT = text("insert into crash.effect (job_id, epoch) values (:job_id, :epoch)")


def url(driver: str) -> str:
    return app.url.replace("postgresql://", f"postgresql+{driver}://", 1)


over_psycopg: AsyncEngine = create_async_engine(url("psycopg"))
over_asyncpg: AsyncEngine = create_async_engine(url("asyncpg"))
over_psycopg2: Engine = create_engine(url("psycopg2"))


@app.task(transaction=async_sessionmaker(over_psycopg))
async def paid_psycopg(ctx: Context) -> int:
    async with ledger.arun(ctx):
        await ctx.session.execute(_EFFECT, {"job_id": ctx.id, "epoch": ctx.epoch})
    return ctx.epoch


@app.task(transaction=async_sessionmaker(over_asyncpg))
async def paid_asyncpg(ctx: Context) -> int:
    async with ledger.arun(ctx):
        await ctx.session.execute(_EFFECT, {"job_id": ctx.id, "epoch": ctx.epoch})
    return ctx.epoch


@app.task(transaction=sessionmaker(over_psycopg2))
def paid_psycopg2(ctx: Context) -> int:
    with ledger.run(ctx):
        ctx.sync_session.execute(_EFFECT, {"job_id": ctx.id, "epoch": ctx.epoch})
    return ctx.epoch


async def closing() -> None:
    await program.main()
    await over_psycopg.dispose()
    await over_asyncpg.dispose()
    over_psycopg2.dispose()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(closing())
