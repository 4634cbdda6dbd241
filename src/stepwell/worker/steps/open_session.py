"""A session of the user's, made by a sessionmaker of SQLAlchemy, whose commit is that of a job or a step."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from stepwell.durable.backend import OpenTransaction, Sessions
from stepwell.postgres import queries
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.callers.dispatch import async_caller_of, caller_of
from stepwell.postgres.callers.same_database import arefuse_elsewhere, refuse_elsewhere
from stepwell.postgres.callers.sessions import as_psycopg, check_sessions
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_lost
from stepwell.postgres.queries import Query
from stepwell.worker.write_observer import about_to_write


@asynccontextmanager
async def open_session(
    database: Database, sessions: Sessions, *, blocking: bool, mark: str | None
) -> AsyncGenerator[OpenTransaction]:
    check_sessions(sessions, is_async=not blocking)
    async with _apart(sessions, blocking=blocking, is_step=mark is None):
        mark = mark or str(uuid4())
        if blocking:
            with sessions() as session:
                caller = caller_of(session)
                refuse_elsewhere(database, caller)
                [pid] = caller.run(queries.outcomes.mark_transaction(mark))
                yield _InSession(session, caller, None, mark, pid)
                committed = about_to_write("transaction", "commit")
                session.commit()
                committed(())
        else:
            async with sessions() as session:
                acaller = async_caller_of(session)
                await arefuse_elsewhere(database, acaller)
                [pid] = await acaller.run(queries.outcomes.mark_transaction(mark))
                yield _InSession(session, None, acaller, mark, pid)
                committed = about_to_write("transaction", "commit")
                await session.commit()
                committed(())


@asynccontextmanager
async def _apart(sessions: Any, *, blocking: bool, is_step: bool) -> AsyncGenerator[None]:
    """Have a scoped session make a new one in this block: one in use in this thread or task has its own transaction.

    Before a step, the handler may have work in it that it commits itself, so it gets it back. Before a handler begins,
    it is a leftover of an earlier run in this thread, and is removed.
    """
    registry = getattr(sessions, "registry", None)
    if registry is None:
        yield
        return
    in_use = registry() if is_step and registry.has() else None
    if in_use is not None:
        registry.clear()
    else:
        await _remove(sessions, blocking=blocking)
    try:
        yield
    finally:
        await _remove(sessions, blocking=blocking)
        if in_use is not None:
            registry.set(in_use)


async def _remove(sessions: Any, *, blocking: bool) -> None:
    if blocking:
        sessions.remove()
    else:
        await sessions.remove()


class _InSession:
    """An open session: one of the callers is None, as the session blocks or is async."""

    aborted = False
    """Not known before the next statement, which raises."""

    def __init__(self, session: Any, caller: Caller | None, acaller: AsyncCaller | None, mark: str, pid: int) -> None:
        self.given = session
        self.pid = pid
        self._caller = caller
        self._acaller = acaller
        self._mark = mark

    async def ended(self) -> bool:
        # What the session still holds back is sent now: if that fails, nothing has been written about the job.
        if self._caller is not None:
            self.given.flush()
        else:
            await self.given.flush()
        return (await self.run(queries.outcomes.transaction_mark()))[0] != self._mark

    async def run(self, query: Query[Any]) -> list[Any]:
        try:
            if self._caller is not None:
                return self._caller.run(query)
            assert self._acaller is not None
            return await self._acaller.run(query)
        except Exception as error:
            if (same := as_psycopg(error)) is not None:
                raise same from error
            raise

    def leaves_in_doubt(self, error: BaseException) -> bool:
        # Only the server can say that it has not committed. A hook of the user's may have failed after the commit.
        same = as_psycopg(error)
        return same is None or same.sqlstate is None or is_lost(same)
