"""Errors of other drivers as psycopg would have raised them, which all of Stepwell understands."""

from __future__ import annotations

import psycopg
from psycopg.pq import DiagnosticField

_FIELDS = {
    DiagnosticField.MESSAGE_DETAIL: ("detail", "message_detail"),
    DiagnosticField.SCHEMA_NAME: ("schema_name",),
    DiagnosticField.TABLE_NAME: ("table_name",),
    DiagnosticField.COLUMN_NAME: ("column_name",),
    DiagnosticField.CONSTRAINT_NAME: ("constraint_name",),
}


def server_error(error: BaseException, sqlstate: str, message: str, fields: object) -> psycopg.Error:
    """Return the error with this SQLSTATE. `fields` has the others as attributes, by the names of asyncpg or libpq."""
    info: dict[int, bytes | None] = {
        DiagnosticField.SQLSTATE: sqlstate.encode(),
        DiagnosticField.MESSAGE_PRIMARY: message.encode(),
    }
    for field, names in _FIELDS.items():
        value = next((value for name in names if (value := getattr(fields, name, None)) is not None), None)
        if value is not None:
            info[field] = str(value).encode()
    try:
        kind = psycopg.errors.lookup(sqlstate)
    except KeyError:
        # As psycopg does: 22SW5 is an error of class 22, data.
        kind = psycopg.DataError if sqlstate.startswith("22") else psycopg.DatabaseError
    return kind(str(error), info=info)


def lost(error: BaseException) -> psycopg.OperationalError:
    """Return an error without a SQLSTATE: the connection was lost, or could not be had."""
    return psycopg.OperationalError(str(error))
