"""What an error of Postgres means: wait, give up, or call a person."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from stepwell.errors import ConfigError, StepNotFound, StepwellError, TooLarge, WorkerNotFound

# SQLSTATE classes, or whole states, after which the same statement may well succeed a little later.
_TRANSIENT = (
    "08",  # connection
    "40",  # serialisation, deadlock
    "53",  # out of disk, memory or connections
    "55006",  # object in use
    "55P03",  # lock not available
    "57",  # shutdown, restart, query cancelled
    "58",  # i/o
    "25006",  # read-only: a failover is under way
    "25P03",  # idle in a transaction for too long
    "25P04",  # a transaction that took too long
)
_HOPELESS = (
    "28",  # the user or password is refused
    "3D000",  # no such database
    "3F000",  # no such schema
    "42501",  # missing rights
    "42P01",  # no such table
    "42883",  # no such function
)
# What our own functions refuse for a reason that the caller may want to catch.
_OURS: dict[str, type[StepwellError]] = {
    "SW002": ConfigError,
    "SW003": WorkerNotFound,
    "SW004": StepNotFound,
    "22SW5": TooLarge,
}
# A connection that is refused carries no SQLSTATE, only words; these are for a person to mend.
_HOPELESS_WORDS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied for database",
    "invalid connection option",
    "not permitted to log in",
)


class Unanswered(psycopg.OperationalError):
    """The server has said nothing for so many seconds: nobody knows whether it did what it was asked."""

    def __init__(self, limit: float) -> None:
        super().__init__(f"the server has not answered for {limit:.3g} s")
        self.limit = limit


class NoConnection(psycopg.OperationalError):
    """No connection was to be had for so many seconds: nothing was sent. `act` is what a person can do about it."""

    def __init__(self, limit: float, why: str, act: str = "is Postgres running there, and is the URL right?") -> None:
        super().__init__(why)
        self.limit = limit
        self.is_call_timeout = False  # the limit is a pool's own
        self.act = act


def is_hopeless(error: BaseException) -> bool:
    """Whether only a person can mend it: no rights, no schema, a user or database that is not there."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_HOPELESS)
    return isinstance(error, psycopg.OperationalError) and any(words in str(error) for words in _HOPELESS_WORDS)


def is_missing(error: BaseException) -> bool:
    """Whether a function or table was not there. That is hopeless, unless it is so only at the moment in which a
    migration replaces it: whoever works by the schema tries again before it believes it."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("42883", "42P01")


def is_transient(error: BaseException) -> bool:
    """Whether the database is only away or busy, so that trying again is right and nobody needs to act."""
    if isinstance(error, OSError):
        return True
    if not isinstance(error, psycopg.Error) or is_hopeless(error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_TRANSIENT)
    # A connection that is lost, or found closed, carries no state.
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def is_rolled_back(error: BaseException) -> bool:
    """Whether the transaction met another one, was rolled back for that alone, and would most likely succeed now: a
    deadlock, a serialisation failure, a lock that was not to be had in time, or a row that was on its way to a
    partition's former place."""
    if not isinstance(error, psycopg.Error):
        return False
    return error.sqlstate in ("40001", "40P01", "55P03") or _was_rerouted(error)


def _was_rerouted(error: psycopg.Error) -> bool:
    """Whether a row waited to be written to the default partition while one was made that is its own."""
    return (
        error.sqlstate == "23514"
        and error.diag.schema_name == "stepwell"
        and error.diag.table_name in ("history_default", "failure_default")
        and error.diag.constraint_name is None
    )


def is_lost(error: BaseException) -> bool:
    """Whether the connection ended, so that nobody knows how far the statement came."""
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, NoConnection):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def is_read_only_error(error: BaseException) -> bool:
    """Whether the server takes no writes: it became a standby, or is about to hand over to another."""
    return isinstance(error, psycopg.errors.ReadOnlySqlTransaction)


def is_refusal(error: BaseException) -> bool:
    """Whether the server refused the statement for what it says, so that certainly nothing was written."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError | TooLarge)


def own(error: BaseException) -> StepwellError | None:
    """The error that one of our own SQL functions raised, as its class; None: it is Postgres' own."""
    kind = _OURS.get(error.sqlstate or "") if isinstance(error, psycopg.Error) else None
    return None if kind is None else kind(in_short(error))


def in_short(error: BaseException) -> str:
    """What it says, in one line: without the statement and the functions that Postgres adds."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split()).removeprefix("stepwell: ")


def where(dsn: str) -> str:
    """The database as a person would name it, without its password."""
    parts = conninfo_to_dict(dsn)
    host = parts.get("host") or "the default socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"database {parts.get('dbname') or parts.get('user') or ''!s} at {host}{port}"
