"""Piccolo's transactions, which lead to a connection of asyncpg."""

from __future__ import annotations

from stepwell.postgres.callers import asyncpg
from stepwell.postgres.callers.caller import AsyncCaller, Caller


def caller(connection: object) -> Caller | None:  # noqa: ARG001 Piccolo has only async connections
    return None


def async_caller(connection: object) -> AsyncCaller | None:
    # A transaction that was not entered has no connection.
    inner: object = getattr(connection, "connection", None)
    return asyncpg.async_caller(inner) if type(connection).__name__ == "PostgresTransaction" else None


def instead(connection: object) -> str | None:  # noqa: ARG001
    return "give a transaction on Postgres, as in 'async with engine.transaction() as transaction'"
