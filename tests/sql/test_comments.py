"""The schema explains itself to whoever looks at it with psql."""

from __future__ import annotations

from .calls import Connection


def test_everything_in_the_schema_has_a_comment(conn: Connection) -> None:
    rows = conn.execute(
        r"""
        select 'schema' where obj_description('stepwell'::regnamespace, 'pg_namespace') is null
        union all
        select c.relname from pg_class c
        where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v', 'i', 'I')
          -- A partition is what its parent is; a primary key's index what its table is.
          and not c.relispartition and c.relname !~ '_pkey$'
          and obj_description(c.oid, 'pg_class') is null
        union all
        select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and a.attnum > 0 and not a.attisdropped
          and col_description(c.oid, a.attnum) is null
        union all
        select t.typname from pg_type t
        where t.typnamespace = 'stepwell'::regnamespace and t.typtype = 'e'
          and obj_description(t.oid, 'pg_type') is null
        """
    )
    assert [row[0] for row in rows] == []
