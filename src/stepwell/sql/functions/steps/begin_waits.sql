-- Save steps of running jobs, and what their branches wait for: each of _waits is as in stepwell.suspend. The waits
-- take the events that are already there. The caller has locked the jobs, which these runs hold. Returns the jobs for
-- which another transaction may be about to commit an event.
create or replace function stepwell.begin_waits(_held uuid[], _epochs integer[], _waits text[]) returns uuid[]
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _unsure uuid[] := '{}';
  _events boolean;
  _incomplete boolean;
begin
  with given as materialized (
    select u.id, u.epoch, s.key, s.n, s.kind, s.value, s.error, s.delay, s.until, s.event, s.event_key, s.seconds,
      s.fingerprint, coalesce(s.pending, false) as pending
    from unnest(_held, _epochs, _waits) as u (id, epoch, wait)
    cross join lateral json_to_recordset(u.wait::json -> 'steps') as s (
      key text, n integer, kind text, value json, error json, delay double precision, until double precision,
      event text, event_key text, seconds double precision, fingerprint integer, pending boolean
    )
  ), saved as (
    insert into stepwell.step (job_id, saved_at, until, seconds, n, epoch, fingerprint, pending, kind, key, event,
      event_key, value, error)
    select g.id, _now,
      coalesce(
        _now + g.delay * interval '1 second',
        -- Clamped to the range of timestamps. greatest and least ignore null, which must stay null.
        case when g.until is not null then to_timestamp(greatest(-1e11, least(g.until, 2e11))) end
      ),
      g.seconds, g.n, g.epoch, g.fingerprint,
      g.pending, g.kind, g.key, g.event, g.event_key, g.value, g.error
    from given g
    where g.key is not null and g.n is not null and g.kind is not null
    on conflict (job_id, key) do nothing
  )
  select coalesce(bool_or(g.event is not null), false), bool_or(g.key is null or g.n is null or g.kind is null)
  into _events, _incomplete
  from given g;
  if _incomplete then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: each step needs a key, a position and a kind';
  end if;
  -- The groups of the last suspend no longer apply.
  update stepwell.step s set awaited = null where s.job_id = any (_held) and s.pending and s.awaited is not null;
  with wanted as materialized (
    select u.id, g.n, k.key
    from unnest(_held, _waits) as u (id, wait)
    cross join lateral json_array_elements(u.wait::json -> 'groups') with ordinality as g (keys, n)
    cross join lateral json_array_elements_text(g.keys) as k (key)
  )
  update stepwell.step s
  set awaited = w.n
  from wanted w
  where s.job_id = any (_held) and s.job_id = w.id and s.key = w.key;
  if _events or exists (
    select from stepwell.step s where s.job_id = any (_held) and s.pending and s.event is not null
  ) then
    _unsure := stepwell.take_events(_held, false);
  end if;
  -- After the events: a wait with no time left still takes an event that is already there.
  perform stepwell.end_waits(_held);
  return _unsure;
end
$$;
