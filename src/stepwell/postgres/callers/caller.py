"""What Stepwell needs from a connection of the caller's, whichever driver it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from stepwell.postgres.queries import Query

if TYPE_CHECKING:
    import psycopg

Row = TypeVar("Row")


class Caller(Protocol):
    """A connection, or an object that leads to one, that blocks. It is made for one call and holds no state."""

    def open(self) -> object:
        """Raise `ConfigError` if it cannot be used, because it is closed or in autocommit. Else return the object that
        lives exactly as long as the session in the database: facts about that are remembered for as long."""
        ...

    def run(self, query: Query[Row]) -> list[Row]:
        """Run a query in the caller's transaction, which begins here if the driver has not begun it yet. Errors of the
        driver are raised as they are."""
        ...

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        """Return an error of the driver as psycopg would have raised it; None: it is not an error of the database."""
        ...


class AsyncCaller(Protocol):
    """The same for async code."""

    async def open(self) -> object: ...

    async def run(self, query: Query[Row]) -> list[Row]: ...

    def as_psycopg(self, error: Exception) -> psycopg.Error | None: ...


class Driver(Protocol):
    """The functions of a driver's module. Each returns None for an object that it cannot use: it is of the other kind,
    or is no connection."""

    def caller(self, connection: object, /) -> Caller | None: ...

    def async_caller(self, connection: object, /) -> AsyncCaller | None: ...

    def instead(self, connection: object, /) -> str | None:
        """Say what to give instead of an object of this package that is no connection; None: nothing is known of it."""
        ...
