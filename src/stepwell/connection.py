"""What every connection is told, and what one can be asked without a round trip."""

from __future__ import annotations

import select
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus

# Every call is one statement. None is prepared: a pooler in transaction mode would lose it, and what there is to plan
# is planned inside the functions anyway (no difference in speed was to be measured).
CONNECTION: Mapping[str, Any] = {"autocommit": True, "prepare_threshold": None}


def stirs(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether there is something to read on an idle connection: most likely its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def pipeline(connection: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
    """Within this, statements are sent without waiting; with a libpq before 14 each waits for the one before."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def apipeline(connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[Any]:
    """The same for async code."""
    return connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext()


def in_pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether it is in a pipeline. A cancel in the wrong moment leaves it there; what is then sent is not committed."""
    return connection.pgconn.pipeline_status != PipelineStatus.OFF
