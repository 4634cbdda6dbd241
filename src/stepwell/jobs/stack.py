"""Ask the worker of a running job where its handler is, and wait for the answer for a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from uuid import UUID

import msgspec

from stepwell.errors import no_such_job
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.queries.logs import StackAsked

PATIENCE = 3.0
_PAUSE = 0.05


class LiveStack(msgspec.Struct, frozen=True):
    """The answer to a request for the stack of a running handler."""

    found: bool
    """Whether the worker has answered. Else `text` says why there is no stack."""
    text: str
    """The stack, as in a traceback: files, lines and functions, without the values of variables."""
    worker: str | None
    """The host and the process of the worker."""


def stack_of(job_id: UUID, database: Database) -> LiveStack:
    """Wait for the stack of a job. Raises `JobNotFound`."""
    [asked] = database.fetch(queries.logs.ask_stack(job_id))
    if asked.request is None:
        return _none(job_id, asked)
    for last in _looks():
        [answer] = database.fetch(queries.logs.read_stack(asked.request, last=last))
        if answer is not None:
            return LiveStack(True, answer, asked.worker)
        time.sleep(_PAUSE)
    return _unanswered(asked)


async def astack_of(job_id: UUID, database: Database) -> LiveStack:
    """The same in async code."""
    [asked] = await database.afetch(queries.logs.ask_stack(job_id))
    if asked.request is None:
        return _none(job_id, asked)
    for last in _looks():
        [answer] = await database.afetch(queries.logs.read_stack(asked.request, last=last))
        if answer is not None:
            return LiveStack(True, answer, asked.worker)
        await asyncio.sleep(_PAUSE)
    return _unanswered(asked)


def _looks() -> Generator[bool]:
    """Yields for each look whether it is the last."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        yield False
    yield True


def _none(job_id: UUID, asked: StackAsked) -> LiveStack:
    if asked.why is None:
        raise no_such_job(job_id)
    return LiveStack(False, asked.why, asked.worker)


def _unanswered(asked: StackAsked) -> LiveStack:
    return LiveStack(
        False,
        f"its worker ({asked.worker}) has not answered within {PATIENCE:g} s: its machine is away or very busy, the "
        "process is stopped, or code in it holds Python's global lock. 'py-spy dump --pid PID' looks from outside",
        asked.worker,
    )
