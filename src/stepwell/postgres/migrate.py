"""Bring the schema up to date, and refuse to work with one that is not.

A migration is a numbered file, frozen once released. Functions, views, settings, comments and rights are replaced whole
after it, so each has one file that is always current. A release that changes one of them adds a migration, even if the
migration is empty. `sql/README.md` lists the files.

The first line of a migration may name the oldest code that works with the schema after it, as in
"-- stepwell: compatible from 6". Such code keeps running, and the package can be rolled back to it.
"""

from __future__ import annotations

import logging
import re
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, LiteralString, cast

import msgspec
import psycopg
from psycopg.rows import scalar_row

from stepwell.errors import DatabaseError, SchemaMismatch
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch

_LOCK: LiteralString = "select pg_advisory_xact_lock(1937007983, 0)"
# Every user of a table queues behind a migration that waits for it, and any role that can connect can hold _LOCK.
_LOCK_TIMEOUT: LiteralString = "set local lock_timeout = '3s'"
_PATIENCE = 60.0
# The oldest transactions are the most likely culprits.
_LOCK_HOLDERS: LiteralString = """
select string_agg(format('process %s (role %s, application %s)', h.pid, h.usename, h.application_name), ', ')
from (
  select a.pid, a.usename, a.application_name
  from pg_stat_activity a
  where a.pid <> pg_backend_pid() and a.pid in (
    select l.pid from pg_locks l left join pg_class c on l.locktype = 'relation' and c.oid = l.relation
    where l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and (c.relnamespace = to_regnamespace('stepwell') or l.locktype = 'advisory' and l.classid = 1937007983)
  )
  order by a.xact_start limit 3
) h
"""
_BEGIN = ("begin.sql", "note_rights.sql", "bootstrap.sql")
_FIRST_PARTITIONS: LiteralString = "select stepwell.make_partitions('{604800, 2592000}')"
_COMPATIBLE = re.compile(r"-- stepwell: compatible from (\d+)\n")
_SETTINGS = ("lock_timeout", "search_path", "check_function_bodies", "client_min_messages", "role")
_READS_COMMITTED: LiteralString = "select current_setting('default_transaction_isolation') like 'read %'"
_FUNCTION = re.compile(r"create or replace function (stepwell\.\w+)\((.*?)\)\s+(?:returns|language)\b", re.DOTALL)
_PARAMETER = re.compile(r"(?P<out>out )?\w+ (?P<type>.+?)(?: default .+)?$")
_DROP_STALE_FUNCTIONS: LiteralString = """
do $$
declare
  _stale regprocedure;
begin
  for _stale in
    select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'stepwell'::regnamespace and p.oid <> all (array[
      {}
    ]::regprocedure[]::oid[])
  loop
    execute format('drop function %s', _stale);
  end loop;
end
$$;
"""

_log = logging.getLogger("stepwell")

Tell = Callable[[str, int, int | None], None]
"""Told what a migration does next, how many of its parts are done, and of how many."""


class Migration(msgspec.Struct, frozen=True):
    version: int
    name: str
    sql: LiteralString

    @property
    def compatible_from(self) -> int | None:
        """The oldest version whose code works with the schema after this; None: only code that has this migration."""
        said = _COMPATIBLE.match(self.sql)
        return int(said[1]) if said else None


@cache
def migrations() -> tuple[Migration, ...]:
    return tuple(Migration(int(name[:4]), name, sql) for name, sql in _files("migrations"))


def newest() -> int:
    """The version of the schema that this code was written for."""
    return migrations()[-1].version


def current(connection: psycopg.Connection[Any]) -> int:
    """The version of the schema in this database; 0: there is none."""
    with connection.cursor(row_factory=scalar_row) as cursor:
        try:
            with connection.transaction():
                return cursor.execute("select stepwell.schema_version()").fetchone() or 0
        except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction):
            return 0
        except psycopg.errors.InsufficientPrivilege as error:
            [who] = fetch(connection, queries.rights.who())
            raise DatabaseError(
                f"role {who.role!r} may not use schema stepwell in database {connection.info.dbname!r}: its owner, "
                f'{who.owner!r}, allows it with "stepwell grant {shlex.quote(who.role)} --as KIND"; KIND is producer, '
                "worker, viewer or operator"
            ) from error


def check(connection: psycopg.Connection[Any], command: str = "stepwell migrate") -> None:
    """Raise `SchemaMismatch`, which names the next act, unless this code works with this schema. `command` migrates."""
    version, needed = current(connection), newest()
    where = f"database {connection.info.dbname!r}"
    if version == 0:
        raise SchemaMismatch(f'{where} has no stepwell schema yet: run "{command}"')
    if version < needed:
        raise SchemaMismatch(f'the schema in {where} is at {version}, this stepwell needs {needed}: run "{command}"')
    with connection.cursor(row_factory=scalar_row) as cursor:
        if version > needed and not cursor.execute("select stepwell.accepts(%s::integer)", (needed,)).fetchone():
            raise SchemaMismatch(
                f"the schema in {where} is at {version}, this stepwell knows only {needed}: upgrade the stepwell "
                "package"
            )
        # Functions lock rows and then count them: the count must see what was committed before the lock was granted.
        if not cursor.execute(_READS_COMMITTED).fetchone():
            raise DatabaseError(
                f"default_transaction_isolation is not 'read committed' in {where} for role {connection.info.user!r}, "
                "and stepwell needs that: set it so for the role or database, or for this app by the URL, with "
                "?options=-cdefault_transaction_isolation%3Dread%5C%20committed"
            )


def migrate(connection: psycopg.Connection[Any], *, target: int | None = None, tell: Tell | None = None) -> list[str]:
    """Apply the missing migrations in one transaction and return their names. Concurrent migrations wait. A newer
    schema is left alone if it works with this code, and refused if not. If another session holds a lock that the
    migration needs, it retries for a minute, unless the caller has begun a transaction. `tell` is called before each
    part, and when it waits. `target` is the last version, for tests."""
    tell = tell or _tell_nobody
    alone = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    deadline = time.monotonic() + (_PATIENCE if alone else 0)
    while True:
        try:
            return _migrate(connection, target, tell)
        # A deadlock is possible with a worker that takes the same locks in another order.
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            with connection.transaction(), connection.cursor(row_factory=scalar_row) as cursor:
                who = cursor.execute(_LOCK_HOLDERS).fetchone() or "another session"
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"database {connection.info.dbname!r} was not migrated, and nothing was changed: {who} holds a "
                    "lock that the migration needs; migrate again when that session has ended, or end it with "
                    '"select pg_terminate_backend(PROCESS)"'
                ) from error
            _log.warning("migrate waits for a lock that %s holds", who)
            tell(f"waiting for a lock that {who} holds", 0, None)
        except psycopg.errors.InsufficientPrivilege as error:
            raise DatabaseError(
                f"role {connection.info.user!r} may not change the schema in database {connection.info.dbname!r} "
                f'({error.diag.message_primary}): run "stepwell migrate" as the owner of the database or schema, or '
                f'"grant create on database {connection.info.dbname} to {connection.info.user}"'
            ) from error


def _tell_nobody(_what: str, _done: int, _total: int | None) -> None: ...


def _migrate(connection: psycopg.Connection[Any], target: int | None, tell: Tell) -> list[str]:
    with connection.transaction(), _settings_kept(connection):
        connection.execute(_LOCK_TIMEOUT)
        connection.execute(_LOCK)
        version = current(connection)
        if version > newest():
            check(connection)
        pending = [m for m in migrations() if version < m.version <= (target or newest())]
        if pending:
            for sql in _BEGIN:
                connection.execute(_read(sql))
            for done, migration in enumerate(pending):
                tell(f"applying {migration.name}", done, len(pending) + 1)
                connection.execute(migration.sql)
                connection.execute(_note(migration))
            if pending[-1].version == newest():
                tell("replacing functions and views", len(pending), len(pending) + 1)
                for sql in _replaceable():
                    connection.execute(sql)
            else:
                # The columns that views select and the types that functions take may not exist yet.
                for sql in _functions():
                    with suppress(psycopg.errors.UndefinedObject), connection.transaction():
                        connection.execute(sql)
        return [migration.name for migration in pending]


@contextmanager
def _settings_kept(connection: psycopg.Connection[Any]) -> Generator[None]:
    """Restore the settings of a caller's own transaction, in which `set local` lasts. An error rolls them back."""
    kept = [
        connection.execute("select pg_catalog.current_setting(%s)", (setting,)).fetchone() or ("",)
        for setting in _SETTINGS
    ]
    yield
    for setting, (value,) in reversed(list(zip(_SETTINGS, kept, strict=True))):
        # psycopg returns bytes if the database has no encoding (SQL_ASCII).
        text = value.decode() if isinstance(value, bytes) else value
        connection.execute("select pg_catalog.set_config(%s, %s, true)", (setting, text))


def script(version: int = 0) -> str:
    parts: list[str] = ["begin;", _LOCK_TIMEOUT + ";", _LOCK + ";", *[_read(sql) for sql in _BEGIN]]
    for migration in migrations():
        if migration.version > version:
            parts += [migration.sql, _note(migration)]
    parts += [sql.rstrip().rstrip(";") + ";" for sql in _replaceable()]
    return "\n".join([*parts, "commit;"]) + "\n"


def _note(migration: Migration) -> LiteralString:
    values = {"version": migration.version, "name": migration.name}
    text = _read("note_migration.sql").format(**values, compatible_from=migration.compatible_from or "null")
    return cast("LiteralString", text)


def rights_script() -> str:
    return _read("rights.sql")


def _replaceable() -> list[LiteralString]:
    """What is replaced whole after the migrations, in order. Stale functions are dropped after the views, which may
    have used them, and before the settings, which name each function without its parameters."""
    return [
        *_functions(),
        *(sql for _, sql in _files("views")),
        _drop_stale_functions(),
        _read("settings.sql"),
        *(sql for _, sql in _files("comments")),
        _read("rights.sql"),
        _FIRST_PARTITIONS,
    ]


def _functions() -> list[LiteralString]:
    return [sql for _, sql in _files("functions")]


def _drop_stale_functions() -> LiteralString:
    """Drop every function that no file defines. It raises if a file does not define what `_signature` reads in it."""
    kept = ",\n      ".join(f"'{_signature(sql)}'" for sql in _functions())
    return cast("LiteralString", _DROP_STALE_FUNCTIONS.format(kept))


def _signature(sql: str) -> str:
    found = _FUNCTION.search(re.sub(r"--.*", "", sql))
    assert found is not None, sql
    name, listed = found.groups()
    parameters = [_PARAMETER.match(part.strip()) for part in listed.split(",") if part.strip()]
    types = [parameter["type"] for parameter in parameters if parameter is not None and not parameter["out"]]
    return f"{name}({', '.join(types)})"


@cache
def _files(folder: str) -> tuple[tuple[str, LiteralString], ...]:
    """The SQL files of a folder and of the folders in it, by name without suffix, in the order of their paths."""
    names = sorted(_paths(resources.files("stepwell") / "sql" / folder))
    return tuple((name.rpartition("/")[2].removesuffix(".sql"), _read(f"{folder}/{name}")) for name in names)


def _paths(folder: Traversable) -> Generator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from (f"{entry.name}/{path}" for path in _paths(entry))
        elif entry.name.endswith(".sql"):
            yield entry.name


def _read(path: str) -> LiteralString:
    # The package's own files are as trustworthy as literals in its code.
    return cast("LiteralString", (resources.files("stepwell") / "sql" / path).read_text("utf-8"))
