"""Refuse a caller's connection to another database than the app's: its jobs would be enqueued where no worker looks.

The cluster's identifier and the database's oid tell databases apart, whatever their addresses: a pooler, a socket and
another host name lead to the same one. They are read once for each session of the caller's, and once for an app. A
replica has the identifier of its primary, so a failover changes nothing. After a move to another cluster, the app's own
is read again before anything is refused.

If the app cannot read its own, because it has no database configured or cannot reach it, nothing is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast
from weakref import WeakKeyDictionary

import psycopg

from stepwell.errors import ConfigError, StepwellError
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.database import Database
from stepwell.postgres.errors import where
from stepwell.postgres.queries.reads import Identity, identity

# The caller's transaction is open meanwhile, so it must not wait for long.
_PATIENCE = 2.0
_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class _Own:
    identity: Identity | None
    read_at: float


_own: WeakKeyDictionary[Database, _Own] = WeakKeyDictionary()
_of_sessions: WeakKeyDictionary[object, Identity] = WeakKeyDictionary()


def refuse_elsewhere(database: Database, caller: Caller) -> None:
    """Open the caller's connection. Raises `ConfigError` if it cannot be used, or is to another database."""
    session, database = caller.open(), database.home
    ours = _known(database)
    if ours is None:
        ours = _learn(database)
    if ours.identity is None or _of_sessions.get(session) == ours.identity:
        return
    theirs = _of_sessions[session] = _as_text(caller.run(identity())[0])
    if theirs != ours.identity:
        _refuse(database, theirs, _learn(database))


async def arefuse_elsewhere(database: Database, caller: AsyncCaller) -> None:
    session, database = await caller.open(), database.home
    ours = _known(database)
    if ours is None:
        ours = await _alearn(database)
    if ours.identity is None or _of_sessions.get(session) == ours.identity:
        return
    theirs = _of_sessions[session] = _as_text((await caller.run(identity()))[0])
    if theirs != ours.identity:
        _refuse(database, theirs, await _alearn(database))


def _as_text(theirs: Identity) -> Identity:
    if not isinstance(cast("object", theirs.id), str):
        raise ConfigError(
            'connection= has the client encoding SQL_ASCII, with which its driver reads text as bytes: run "set '
            "client_encoding to 'UTF8'\" on it first"
        )
    return theirs


def _known(database: Database) -> _Own | None:
    found = _own.get(database)
    if found is not None and found.identity is None and time.monotonic() > found.read_at + _PAUSE:
        return None
    return found


def _learn(database: Database) -> _Own:
    try:
        found = database.fetch(identity(), _PATIENCE)[0]
    except (StepwellError, psycopg.Error, OSError):
        found = None
    own = _own[database] = _Own(found, time.monotonic())
    return own


async def _alearn(database: Database) -> _Own:
    try:
        found = (await database.afetch(identity(), _PATIENCE))[0]
    except (StepwellError, psycopg.Error, OSError):
        found = None
    own = _own[database] = _Own(found, time.monotonic())
    return own


def _refuse(database: Database, theirs: Identity, ours: _Own) -> None:
    if ours.identity is None or theirs == ours.identity:
        return
    raise ConfigError(
        f"connection= is to another database, {theirs.name!r}: the jobs of this app are in {where(database.dsn)}, and "
        "its workers look only there. Give a connection to that one, or make the app for the other"
    )
