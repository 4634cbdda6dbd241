"""SQLModel's sessions, which are SQLAlchemy's."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlmodel import Field, Session, SQLModel, select
from sqlmodel.ext.asyncio.session import AsyncSession

from stepwell import App

from .engines import async_engine, engine
from .every_call import Jobs


class Hero(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str


async def test_a_job_joins_the_transaction_of_its_sessions(app: App, conn: psycopg.Connection[Any]) -> None:
    jobs = Jobs(app)
    own = engine(app)
    SQLModel.metadata.create_all(own)
    with Session(own) as session:
        session.add(Hero(name="Ada"))
        kept = jobs.note.using(connection=session).enqueue(1)
        session.commit()
        gone = jobs.note.using(connection=session).enqueue(2)
        session.rollback()
    async with AsyncSession(async_engine(app, "asyncpg")) as session:
        [hero] = await session.exec(select(Hero))
        also = await jobs.note.using(connection=session).aenqueue(hero.id or 0)
        await session.commit()
    assert [await job.aexists() for job in (kept, gone, also)] == [True, False, True]
