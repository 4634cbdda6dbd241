"""Arrays for Postgres, written out faster than psycopg does it: an outcome is five elements of such arrays.

They are lists, so a connection that does not know them, made before this was imported, takes them as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.adapt import Dumper


class Bare(list[Any]):
    """Elements that need no quotes: uuids, numbers, names of states; or None."""


class Texts(list[Any]):
    """Texts, or None."""


class _ArrayDumper(Dumper):
    def _array(self, elements: list[str]) -> bytes:
        written = "{" + ",".join(elements) + "}"
        if "\x00" in written:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        encoding = self.connection.info.encoding if self.connection else "utf-8"
        # As psycopg does for text: a database that does not care is given UTF-8.
        return written.encode("utf-8" if encoding == "ascii" else encoding)


class _BareDumper(_ArrayDumper):
    def dump(self, obj: Iterable[Any]) -> bytes:
        return self._array(["NULL" if element is None else str(element) for element in obj])


class _TextsDumper(_ArrayDumper):
    def dump(self, obj: Iterable[str | None]) -> bytes:
        return self._array(["NULL" if element is None else _quoted(element) for element in obj])


def _quoted(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'


psycopg.adapters.register_dumper(Bare, _BareDumper)
psycopg.adapters.register_dumper(Texts, _TextsDumper)
