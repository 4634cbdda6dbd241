"""Turn database errors into messages that name the database, the role and the next act."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import args_row

from stepwell.errors import DatabaseError, DatabaseTimeout, SchemaMismatch, StepwellError
from stepwell.postgres import migrate, queries
from stepwell.postgres.errors import (
    NoConnection,
    Refusal,
    Unanswered,
    in_short,
    is_own,
    is_permanent,
    is_read_only_error,
    is_transient,
    refusal,
    stepwell_error,
    where,
)
from stepwell.postgres.threads import in_thread
from stepwell.values.duration import describe

if TYPE_CHECKING:
    from stepwell.postgres.database import Database
    from stepwell.postgres.queries.rights import Who

_PATIENCE = 3
_SETTING = "(App(call_timeout=...) sets this limit)"
# If several kinds of role have a right, the hint names the first of these, which has the fewest other rights.
_SMALLEST_FIRST = ("producer", "viewer", "operator", "worker")
_ENTRY = re.compile(r"'\{([a-z,]+)\}'(?:::text\[\])?,\s*'(function|view)',\s*'\{([^}]*)\}'")


def has_a_hint(error: Exception) -> bool:
    return is_permanent(error) or is_transient(error) or stepwell_error(error) is not None


def explain(error: BaseException, dsn: str | None) -> StepwellError:
    """Make the error with a hint. A missing right asks the database for the role: use `aexplain` in async code. `dsn`
    None: it happened on a connection of the caller's, whose address is unknown."""
    if (ours := stepwell_error(error)) is not None:
        return ours
    place = "the database of connection=" if dsn is None else where(dsn)
    said = in_short(error)
    if isinstance(error, Unanswered | NoConnection):
        limit = f"{describe(error.limit)} {_SETTING}" if error.is_call_timeout else describe(error.limit)
        if isinstance(error, NoConnection):
            return DatabaseTimeout(f"{place} gave no connection within {limit}: {said}. Nothing was sent; {error.act}")
        return DatabaseTimeout(
            f"{place} has not answered for {limit}. It is unknown whether the call was carried out: check before you "
            "repeat it. Does the server hang, is it overloaded, or is the network cut?"
        )
    if is_read_only_error(error):
        return DatabaseError(
            f"{place} takes no writes ({said}), so nothing was written. If it is a standby, name the primary in the "
            "URL, or all servers (host=a,b); if not, turn default_transaction_read_only off"
        )
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    if sqlstate == "42501":
        return DatabaseError(missing_right(error, None if dsn is None else _who(dsn), place))
    if sqlstate in ("3F000", "42P01", "42883"):
        return SchemaMismatch(f'{place}: the stepwell schema is missing or incomplete: run "stepwell migrate" ({said})')
    match refusal(error):
        case Refusal.LOGIN:
            return DatabaseError(f"{place}: the server refused this user or password: correct the URL ({said})")
        case Refusal.MISSING:
            return DatabaseError(f"{place}: {said}; create it, or correct the URL")
        case Refusal.OTHER | None:
            return DatabaseError(f"{place} cannot be used: {said}; is Postgres running there, and is the URL right?")


async def aexplain(error: BaseException, dsn: str | None) -> StepwellError:
    return await in_thread(lambda: explain(error, dsn))


def missing_right(error: BaseException, who: Who | None, place: str) -> str:
    """Say which right a role lacks, and who can grant it with which command. `who` None: the role is unknown."""
    role = f"role {who.role!r}" if who else "this role"
    owner = f"the owner of the schema, {who.owner!r}," if who else "the owner of the schema"
    name = _denied(error)
    # Only the message says that it was the schema that was refused, as in `_denied`.
    if name is None and "stepwell" in _words(in_short(error)):
        return (
            f'{role} may not use schema stepwell in {place}: {owner} allows it with "stepwell grant '
            f'{shlex.quote(who.role) if who else "ROLE"} --as KIND", where KIND is {", ".join(_SMALLEST_FIRST)}'
        )
    if name is None:
        return (
            f"{role} may not do this in {place} ({in_short(error)}): connect as {owner.rstrip(',')}, or as a superuser"
        )
    what, kind = rights()[name]
    return (
        f"{role} may not {'call' if what == 'function' else 'read'} stepwell.{name} in {place}: {owner} allows it with "
        f'"stepwell grant {shlex.quote(who.role) if who else "ROLE"} --as {kind}"'
    )


@cache
def rights() -> dict[str, tuple[str, str]]:
    """Map each function and view to "function" or "view", and to the kind with the fewest rights that may use it."""
    found: dict[str, tuple[str, str]] = {}
    for kinds, what, names in _ENTRY.findall(migrate.rights_script()):
        for name in _words(names):
            rivals = [*kinds.split(","), *([found[name][1]] if name in found else [])]
            smallest = next((kind for kind in _SMALLEST_FIRST if kind in rivals), None)
            if smallest is not None:
                found[name] = (what, smallest)
    return found


def _denied(error: BaseException) -> str | None:
    """Return the function or view that the role may not use; None: it is not one that a kind of role may use."""
    # Postgres names the object only in its message, in the server's language, and in no other field. So this looks for
    # the known names. If the schema is refused, the message shows the statement, which names the function.
    words = [*re.findall(r"stepwell\.(\w+)", str(error)), *_words(in_short(error))]
    return next((word for word in reversed(words) if word in rights()), None)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _who(dsn: str) -> Who | None:
    query = queries.rights.who()
    try:
        with psycopg.connect(dsn, connect_timeout=_PATIENCE) as connection:
            return connection.cursor(row_factory=args_row(query.row)).execute(query.text, query.params).fetchone()
    except psycopg.Error:
        return None  # for example on the caller's connection, whose password is not in its dsn


@contextmanager
def translated(database: Database) -> Generator[None]:
    """Raise every error of psycopg in this block as an error of Stepwell, with the next act."""
    try:
        yield
    except psycopg.Error as error:
        if is_own(error):
            raise DatabaseError(in_short(error)) from error
        if isinstance(error, psycopg.DataError):
            raise StepwellError(f"Postgres refuses this value: {in_short(error)}") from error
        raise explain(error, database.dsn) from error
