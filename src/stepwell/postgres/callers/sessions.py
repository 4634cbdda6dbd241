"""The session factories that transactional tasks and steps take, found by the names of their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import ConfigError
from stepwell.postgres.callers.dispatch import named

if TYPE_CHECKING:
    import psycopg

TransactionOption: TypeAlias = bool | Callable[..., Any]
"""The option `transaction=`: whether a task is one transaction, or the factory of the sessions that are."""

_SYNC = ("sessionmaker", "scoped_session")
_ASYNC = ("async_sessionmaker", "async_scoped_session")


def sessions_of(transaction: object, *, is_async: bool, what: str) -> Callable[..., Any] | None:
    """Return the factory in the option `transaction=`; None: there is none. Raises `ConfigError`, which begins with
    `what`, if it does not fit."""
    if isinstance(transaction, bool):
        return None
    try:
        return check_sessions(transaction, is_async=is_async)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None


def check_sessions(sessions: object, *, is_async: bool) -> Callable[..., Any]:
    """Raises `ConfigError` for anything but a session factory of SQLAlchemy that suits such a function."""
    names = {base.__name__ for base in type(sessions).__mro__ if base.__module__.startswith("sqlalchemy.")}
    wanted, other = (_ASYNC, _SYNC) if is_async else (_SYNC, _ASYNC)
    if names.intersection(other):
        kind = (
            "'async def', so its sessions come from an" if is_async else "a plain function, so its sessions come from a"
        )
        raise ConfigError(f"the function is {kind} {wanted[0]}, not from {named(sessions)}")
    if not names.intersection(wanted) or not callable(sessions):
        raise ConfigError(f"transaction= is {named(sessions)}: give True, or a {_SYNC[0]} or {_ASYNC[0]} of SQLAlchemy")
    return sessions


def as_psycopg(error: BaseException) -> psycopg.Error | None:
    """Return an error of a session as psycopg would have raised it; None: it is not an error of the database."""
    import psycopg  # a program that only defines tasks starts without it

    if isinstance(error, psycopg.Error):
        return error
    if not any(base.__module__.startswith("sqlalchemy.") for base in type(error).__mro__):
        return None
    from stepwell.postgres.callers import sqlalchemy  # the user has it: it raised the error

    return sqlalchemy.as_psycopg(error)
