-- Which steps of a job's history it has when it is tried again; see stepwell.retry. Those of a chain or machine only tell
-- where it has been, so they stay.
create or replace function stepwell.kept_steps(_steps json, _failed_step text, _step text, _from_start boolean)
returns table (
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
set search_path = pg_catalog, pg_temp
as $$
  with all_steps as materialized (
    select u.key, u.n, u.kind, u.epoch, u.saved_at, u.seconds, u.pending, u.timed_out, u.undo, u.large, u.until,
      u.fingerprint, u.child_id, u.event, u.event_key, u.event_id, u.value, u.error
    from stepwell.unfold(_steps) u
  )
  select a.key, a.n, a.kind, a.epoch, a.saved_at, a.seconds, a.pending, a.timed_out, a.undo, a.large, a.until,
    a.fingerprint, a.child_id, a.event, a.event_key, a.event_id, a.value, a.error
  from all_steps a
  where a.kind in ('state', 'taken')
    or (
      not _from_start
      and not exists (select from all_steps b where b.kind = 'undo')
      and not (a.kind = 'child' and a.pending)
      and a.key is distinct from _failed_step
      -- Nor its tries.
      and (a.kind = 'retry' and starts_with(a.key, _failed_step || '~')) is not true
      and (_step is null or a.n < (select b.n from all_steps b where b.key = _step))
    )
$$;
