-- The steps that a timeline tells of, as rows.
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
-- Everybody may call it, and the view of steps runs it with its reader's rights: so it must not look for operators where
-- somebody else could have put one.
set search_path = pg_catalog, pg_temp
as $$
  select e.step ->> 0, (e.step ->> 1)::integer, e.step ->> 2, (e.step ->> 3)::integer,
    to_timestamp((e.step ->> 4)::double precision), (e.step ->> 5)::double precision,
    coalesce((e.step -> 8 ->> 'pending')::boolean, false), coalesce((e.step -> 8 ->> 'timed_out')::boolean, false),
    coalesce((e.step -> 8 ->> 'undo')::boolean, false), coalesce((e.step -> 8 ->> 'large')::boolean, false),
    (e.step -> 8 ->> 'until')::timestamptz, (e.step ->> 6)::integer, (e.step -> 8 ->> 'child_id')::uuid,
    e.step -> 8 ->> 'event', e.step -> 8 ->> 'event_key', (e.step -> 8 ->> 'event_id')::bigint,
    -- What was not set comes back as SQL's null, not JSON's.
    case when json_typeof(e.step -> 7) <> 'null' then e.step -> 7 end,
    case when json_typeof(e.step -> 8 -> 'error') <> 'null' then e.step -> 8 -> 'error' end
  from json_array_elements(_steps) as e (step)
$$;
