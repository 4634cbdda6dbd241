"""The schema explains itself to whoever looks at it with psql."""

from __future__ import annotations

import re
from importlib import resources

from .calls import Connection

_COMMENTED = r"""
with named as (
  select 'stepwell' as name, obj_description('stepwell'::regnamespace, 'pg_namespace') as comment, 'schema' as kind
  union all
  select c.relname, obj_description(c.oid, 'pg_class'), case c.relkind when 'v' then 'view' else 'relation' end
  from pg_class c
  where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v', 'i', 'I')
    -- A partition is what its parent is; a primary key's index what its table is.
    and not c.relispartition and c.relname !~ '_pkey$'
  union all
  select c.relname || '.' || a.attname, col_description(c.oid, a.attnum), 'column'
  from pg_class c join pg_attribute a on a.attrelid = c.oid
  where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'c') and not c.relispartition
    and a.attnum > 0 and not a.attisdropped
  union all
  select t.typname, obj_description(t.oid, 'pg_type'), 'type'
  from pg_type t left join pg_class c on c.oid = t.typrelid
  where t.typnamespace = 'stepwell'::regnamespace and (t.typtype = 'e' or c.relkind = 'c')
)
select name, comment, kind from named
"""


def test_everything_in_the_schema_has_a_comment(conn: Connection) -> None:
    rows = conn.execute(_COMMENTED).fetchall()
    assert len(rows) > 200, "nothing was looked at"
    assert [name for name, comment, _ in rows if comment is None] == []


def test_a_comment_is_stated_once_and_says_more_than_its_migration(conn: Connection) -> None:
    folder = resources.files("stepwell") / "sql"
    stated, migrated = (
        _stated("\n".join(file.read_text("utf-8") for file in (folder / name).iterdir()))
        for name in ("comments", "migrations")
    )
    assert len({name for name, _ in stated}) == len(stated) > 100
    assert set(stated).isdisjoint(migrated)
    rows = conn.execute(_COMMENTED).fetchall()
    assert {name for name, _ in stated} <= {name for name, _, kind in rows if kind != "view"}


def _stated(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"^comment on \w+ (?:stepwell\.)?([\w.]+) is\s+((?:'(?:[^']|'')*'\s*)+);", text, re.MULTILINE)
    return [(name, re.sub(r"'\s+'", "", comment)) for name, comment in found]
