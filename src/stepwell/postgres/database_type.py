"""The type `Database`, for annotations in modules that are loaded before psycopg is.

Psycopg takes longer to import than all of Stepwell. A program that defines tasks, or imports those of others, starts
without it: the first `App` loads it. Annotations that are read at run time have `Any` instead.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.postgres.database import Database
else:
    Database = Any

__all__ = ["Database"]
