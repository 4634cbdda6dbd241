-- The steps of a timeline as rows.
create or replace function stepwell.unfold(_steps json) returns table (
  key text,
  n integer,
  kind text,
  epoch integer,
  saved_at timestamptz,
  seconds double precision,
  pending boolean,
  timed_out boolean,
  undo boolean,
  large boolean,
  until timestamptz,
  fingerprint integer,
  child_id uuid,
  event text,
  event_key text,
  event_id bigint,
  value json,
  error json
)
language sql stable
-- Postgres inlines this function, which makes it fifteen times as fast; a fixed search_path would prevent that. The
-- view stepwell.steps runs it with the rights of its reader. So every name is qualified: no operator of another schema
-- can take its place.
as $$
  select e.step operator(pg_catalog.->>) 0, (e.step operator(pg_catalog.->>) 1)::integer,
    e.step operator(pg_catalog.->>) 2, (e.step operator(pg_catalog.->>) 3)::integer,
    pg_catalog.to_timestamp((e.step operator(pg_catalog.->>) 4)::double precision),
    (e.step operator(pg_catalog.->>) 5)::double precision,
    coalesce((m.more operator(pg_catalog.->>) 'pending'::pg_catalog.text)::boolean, false),
    coalesce((m.more operator(pg_catalog.->>) 'timed_out'::pg_catalog.text)::boolean, false),
    coalesce((m.more operator(pg_catalog.->>) 'undo'::pg_catalog.text)::boolean, false),
    coalesce((m.more operator(pg_catalog.->>) 'large'::pg_catalog.text)::boolean, false),
    (m.more operator(pg_catalog.->>) 'until'::pg_catalog.text)::timestamp with time zone,
    (e.step operator(pg_catalog.->>) 6)::integer,
    (m.more operator(pg_catalog.->>) 'child_id'::pg_catalog.text)::pg_catalog.uuid,
    m.more operator(pg_catalog.->>) 'event'::pg_catalog.text,
    m.more operator(pg_catalog.->>) 'event_key'::pg_catalog.text,
    (m.more operator(pg_catalog.->>) 'event_id'::pg_catalog.text)::bigint,
    -- Missing values are SQL nulls, not JSON nulls.
    case
      when pg_catalog.json_typeof(e.step operator(pg_catalog.->) 7) operator(pg_catalog.<>) 'null'::pg_catalog.text
      then e.step operator(pg_catalog.->) 7
    end,
    case
      when pg_catalog.json_typeof(m.more operator(pg_catalog.->) 'error'::pg_catalog.text)
        operator(pg_catalog.<>) 'null'::pg_catalog.text
      then m.more operator(pg_catalog.->) 'error'::pg_catalog.text
    end
  from pg_catalog.json_array_elements(_steps) as e (step)
  cross join lateral (select e.step operator(pg_catalog.->) 8 as more) m
$$;
