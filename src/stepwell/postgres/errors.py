"""Classify errors from Postgres: try again, give up, or ask a person. Decides by SQLSTATE wherever there is one."""

from __future__ import annotations

import re
from enum import Enum

import psycopg
from psycopg.conninfo import conninfo_to_dict

from stepwell.errors import ConfigError, JobExists, StepNotFound, StepwellError, TooLarge, WorkerNotFound

# SQLSTATE classes, or whole states, after which the same statement may succeed a little later.
_TRANSIENT = (
    "08",  # connection
    "40",  # serialization failure, deadlock
    "53",  # out of disk, memory or connections
    "55006",  # object in use
    "55P03",  # lock not available
    "57",  # shutdown, restart, query cancelled
    "58",  # i/o
    "25006",  # read-only: a failover is under way
    "25P03",  # idle in a transaction for too long
    "25P04",  # a transaction that took too long
)
_PERMANENT = (
    "28",  # the user or password is refused
    "3D000",  # no such database
    "3F000",  # no such schema
    "42501",  # missing rights
    "42P01",  # no such table
    "42883",  # no such function
)
_BY_SQLSTATE: dict[str, type[StepwellError]] = {
    "SW002": ConfigError,
    "SW003": WorkerNotFound,
    "SW004": StepNotFound,
}
_TOO_LARGE = "22SW5"
_JOB_EXISTS = "SW005"
# So begins the message of every other exception that our SQL functions raise. They have standard SQLSTATEs, which
# callers in SQL can catch by name, so only this mark tells them from errors of Postgres itself.
_OWN = "stepwell: "


class Refusal(Enum):
    """The reason why a server refused a connection permanently."""

    LOGIN = "login"
    MISSING = "missing"
    OTHER = "other"


# libpq gives no SQLSTATE for a connection that is refused while it is opened, only the server's message. This table is
# the only place that reads one. A server that speaks another language is taken to be away, and tried again.
_REFUSALS = {
    "authentication failed": Refusal.LOGIN,
    "no password supplied": Refusal.LOGIN,
    "no pg_hba.conf entry": Refusal.LOGIN,
    "does not exist": Refusal.MISSING,
    "permission denied for database": Refusal.OTHER,
    "invalid connection option": Refusal.OTHER,
    "not permitted to log in": Refusal.OTHER,
}


class Unanswered(psycopg.OperationalError):
    """The server has been silent for this many seconds, so it is unknown whether it carried out the statement."""

    def __init__(self, limit: float) -> None:
        super().__init__(f"the server has not answered for {limit:.3g} s")
        self.limit = limit
        self.is_call_timeout = True


class NoConnection(psycopg.OperationalError):
    """There was no connection within this many seconds, so nothing was sent. `act` says what a person can do."""

    def __init__(self, limit: float, why: str, act: str = "is Postgres running there, and is the URL right?") -> None:
        super().__init__(why)
        self.limit = limit
        self.is_call_timeout = False  # the limit is a pool's own
        self.act = act


def refusal(error: BaseException) -> Refusal | None:
    """Return why the server refused a connection permanently; None: the error is something else."""
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return None
    text = str(error)
    return next((kind for words, kind in _REFUSALS.items() if words in text), None)


def is_permanent(error: BaseException) -> bool:
    """Whether only a person can fix it: missing rights, a missing schema, a wrong user, password or database."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(_PERMANENT)
    return refusal(error) is not None


def is_missing(error: BaseException) -> bool:
    """Whether a function or table was missing. A migration replaces functions, so one may be missing for a moment: try
    again before you treat this as permanent."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("42883", "42P01")


def is_transient(error: BaseException) -> bool:
    """Whether the database is only away or busy, so that another try may succeed and no person needs to act."""
    if isinstance(error, OSError):
        return True
    if not isinstance(error, psycopg.Error) or is_permanent(error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_TRANSIENT)
    # A connection that was lost, or is found closed, has no SQLSTATE.
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def is_rolled_back(error: BaseException) -> bool:
    """Whether the transaction was rolled back only because of a concurrent one, and would most likely succeed now:
    after a deadlock, a serialization failure, a lock timeout, or a change of the partition that a row was routed to."""
    if not isinstance(error, psycopg.Error):
        return False
    return error.sqlstate in ("40001", "40P01", "55P03") or _was_rerouted(error)


def _was_rerouted(error: psycopg.Error) -> bool:
    """Whether a row was about to go to the default partition while its own partition was created."""
    return (
        error.sqlstate == "23514"
        and error.diag.schema_name == "stepwell"
        and error.diag.table_name in ("history_default", "failure_default")
        and error.diag.constraint_name is None
    )


def is_lost(error: BaseException) -> bool:
    """Whether the connection was lost, so that it is unknown how far the statement got."""
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, NoConnection):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def is_read_only_error(error: BaseException) -> bool:
    """Whether the server takes no writes: it became a standby, or is about to hand over to another server."""
    return isinstance(error, psycopg.errors.ReadOnlySqlTransaction)


def is_refusal(error: BaseException) -> bool:
    """Whether the server refused the content of the statement, so that nothing was written."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError | TooLarge)


def is_data_error(error: BaseException) -> bool:
    """Whether a value cannot be sent or stored, so that the same statement would always fail."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(("22", "23"))
    # psycopg refuses NUL, Python lone surrogates, and times that no datetime has.
    return isinstance(error, psycopg.DataError | ValueError | OverflowError)


def stepwell_error(error: BaseException) -> StepwellError | None:
    """Return the `StepwellError` for an error that a SQL function of Stepwell raised; None: Postgres raised it."""
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate == _TOO_LARGE:
        size = error.diag.message_detail
        size = int(size) if size and size.isdecimal() else None
        return TooLarge(in_short(error), kind=error.diag.column_name, size=size)
    if error.sqlstate == _JOB_EXISTS:
        return JobExists(in_short(error), error.diag.message_detail or "")
    kind = _BY_SQLSTATE.get(error.sqlstate or "")
    return None if kind is None else kind(in_short(error))


def is_own(error: psycopg.Error) -> bool:
    """Whether a SQL function of Stepwell raised the error."""
    return (error.diag.message_primary or "").startswith(_OWN)


def in_short(error: BaseException) -> str:
    """Return the message in one line, without the statement and the call stack that Postgres adds."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    line = " ".join((primary or str(error)).split()).removeprefix(_OWN)
    return re.sub(r" Is the server running [^?]*\?", "", line)  # our own hints ask that, too


def where(dsn: str) -> str:
    """Name the database for a message, without its password."""
    parts = conninfo_to_dict(dsn)
    host = parts.get("host") or "the default socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"database {parts.get('dbname') or parts.get('user') or ''!s} at {host}{port}"
