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
language sql immutable
as $$
  select s.key, s.n, s.kind, s.epoch, s.saved_at, s.seconds, s.pending, s.timed_out, s.undo, s.large, s.until,
    s.fingerprint, s.child_id, s.event, s.event_key, s.event_id, s.value, s.error
  from json_to_recordset(_steps) as s (
    key text, n integer, kind text, epoch integer, saved_at timestamptz, seconds double precision, pending boolean,
    timed_out boolean, undo boolean, large boolean, until timestamptz, fingerprint integer, child_id uuid, event text,
    event_key text, event_id bigint, value json, error json
  )
$$;
