"""Tortoise's transactions, which lead to a connection of asyncpg or psycopg."""

from __future__ import annotations

from typing import Any, cast

from stepwell.postgres.callers import asyncpg, psycopg
from stepwell.postgres.callers.caller import AsyncCaller, Caller


def caller(connection: object) -> Caller | None:  # noqa: ARG001 Tortoise has only async connections
    return None


def async_caller(connection: object) -> AsyncCaller | None:
    if type(connection).__name__ != "TransactionWrapper":
        return None
    inner = cast("Any", connection)._connection
    return asyncpg.async_caller(inner) or psycopg.async_caller(inner)


def instead(connection: object) -> str | None:  # noqa: ARG001
    return "give the connection of a transaction on Postgres, as in 'async with in_transaction() as connection'"
