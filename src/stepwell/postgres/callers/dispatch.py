"""Find the driver of an object by the package of its class, and import only that driver."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import cast

from stepwell.errors import ConfigError
from stepwell.postgres.callers.caller import AsyncCaller, Caller, Driver

# The package of a class, or of one of its bases, and the module of this room that knows it.
_DRIVERS = {
    "psycopg": "psycopg",
    "psycopg_pool": "psycopg",
    "asyncpg": "asyncpg",
    "sqlalchemy": "sqlalchemy",
    "django": "django",
    "tortoise": "tortoise",
}
GIVE = (
    "give a psycopg.Connection or psycopg.AsyncConnection, an asyncpg connection, a connection or session of "
    "SQLAlchemy, a transaction of Tortoise, or an alias of Django's DATABASES; with any other driver call "
    "stepwell.enqueue(...) in SQL"
)


def caller_of(connection: object) -> Caller:
    """Raises `ConfigError` for an object that blocking calls cannot use."""
    driver = _driver_of(connection)
    if driver is None:
        raise _unknown(connection, None)
    if (found := driver.caller(connection)) is not None:
        return found
    if driver.async_caller(connection) is not None:
        raise ConfigError(
            f"connection= is {named(connection)}, which is async: await the call that begins with 'a', or give the "
            "sync kind"
        )
    raise _unknown(connection, driver)


def async_caller_of(connection: object) -> AsyncCaller:
    """Raises `ConfigError` for an object that async calls cannot use."""
    driver = _driver_of(connection)
    if driver is None:
        raise _unknown(connection, None)
    if (found := driver.async_caller(connection)) is not None:
        return found
    if driver.caller(connection) is not None:
        raise ConfigError(
            f"connection= is {named(connection)}, which blocks: use the call without the 'a', or give the async kind"
        )
    raise _unknown(connection, driver)


def named(connection: object) -> str:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _driver_of(connection: object) -> Driver | None:
    if not isinstance(connection, str):
        return _driver_of_class(type(connection))
    if "=" in connection or "://" in connection:
        # Not shown: it may have a password.
        raise ConfigError(f"connection= is a connection string, not a connection: {GIVE}")
    return _django(connection)


@lru_cache(maxsize=64)
def _driver_of_class(kind: type) -> Driver | None:
    # A user's own subclass has a base of the driver's.
    for base in kind.__mro__:
        name = _DRIVERS.get(base.__module__.partition(".")[0])
        if name is not None:
            return cast("Driver", import_module(f"stepwell.postgres.callers.{name}"))
    return None


def _django(alias: str) -> Driver:
    try:
        return cast("Driver", import_module("stepwell.postgres.callers.django"))
    except ImportError:
        raise ConfigError(
            f"connection={alias!r} would be an alias of Django's DATABASES, and Django is not installed: {GIVE}"
        ) from None


def _unknown(connection: object, driver: Driver | None) -> ConfigError:
    instead = None if driver is None else driver.instead(connection)
    return ConfigError(f"connection= is {named(connection)}: {instead or GIVE}")
