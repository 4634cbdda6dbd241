-- Hand back running jobs until what they wait for has happened. The attempt does not count. Each of _waits is {"steps":
-- [...], "groups": [["key", ...], ...], "at_once": false}: steps to save first, and groups of steps. The job continues
-- when all steps of one group have ended; at_once: now. Returns the ids refused by the fence.
create or replace function stepwell.suspend(_ids uuid[], _epochs integer[], _waits text[]) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _held uuid[];
  _at_once uuid[];
  _unsure uuid[] := '{}';
  _events boolean;
  _incomplete boolean;
  _cancelling uuid[];
  _places stepwell.place[];
  _due_in double precision;
begin
  perform stepwell.check_isolation();
  if pg_column_size(_waits) > 65536 then
    perform stepwell.check_sizes('job', _waits);
    perform stepwell.check_sizes('step', array(
      select v.text from unnest(_waits) as u (wait)
      cross join lateral json_to_recordset(u.wait::json -> 'steps') as s (value json, error json)
      cross join lateral (values (s.value::text), (s.error::text)) as v (text)
      where octet_length(v.text) > 65536
    ));
  end if;
  perform stepwell.lock_to_hand_back(_ids);
  -- From here on, only the waits of runs that hold their job. If a run is named twice, the last wait counts.
  select coalesce(array_agg(h.id), '{}'), array_agg(h.epoch), array_agg(h.wait) into _held, _epochs, _waits
  from (
    select distinct on (u.id) u.id, u.epoch, u.wait
    from unnest(_ids, _epochs, _waits) with ordinality as u (id, epoch, wait, n)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
    order by u.id, u.n desc
  ) h;
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
  _at_once := array(select u.id from unnest(_held, _waits) as u (id, wait) where (u.wait::json ->> 'at_once')::boolean);
  if _events or exists (
    select from stepwell.step s where s.job_id = any (_held) and s.pending and s.event is not null
  ) then
    _unsure := stepwell.take_events(_held, false);
  end if;
  -- After the events: a wait with no time left still takes an event that is already there.
  perform stepwell.end_waits(_held);
  with given as materialized (
    select u.id, json_array_length(u.wait::json -> 'groups') as awaits
    from unnest(_held, _waits) as u (id, wait)
  ), decided as materialized (
    select g.id, g.awaits,
      g.id in (select o.id from unnest(_at_once) as o (id)) or g.awaits > (
        select count(distinct s.awaited) from stepwell.step s where s.job_id = g.id and s.pending
      ) as goes_on,
      g.id = any (_unsure) as unsure,
      (
        select min(s.until) from stepwell.step s where s.job_id = g.id and s.pending and s.awaited is not null
      ) as until
    from given g
  ), suspended as (
    update stepwell.job j
    set state = case when d.goes_on then 'ready'::stepwell.state else 'waiting'::stepwell.state end,
      run_at = case
        when d.goes_on then _now
        when d.unsure then least(d.until, _now + stepwell.look_delay(1))
        else coalesce(d.until, 'infinity')
      end,
      unsure = case when d.unsure and not d.goes_on then 1 end,
      attempt = j.attempt - 1, worker_id = null, durable = true, awaits = d.awaits
    from decided d
    where j.id = any (_held) and j.id = d.id
    returning j.id, j.queue, j.rank, j.state, j.run_at, j.cancelling, j.awaits
  )
  select array_agg(s.id) filter (where s.cancelling),
    array_agg(row(s.queue, s.rank, s.run_at)::stepwell.place) filter (where s.state = 'ready'),
    extract(epoch from min(s.run_at) filter (where s.state = 'waiting' and s.run_at < 'infinity') - _now),
    bool_or(s.state = 'waiting' and coalesce(s.awaits, 0) = 0)
  into _cancelling, _places, _due_in, _incomplete
  from suspended s;
  if _incomplete then
    -- Nothing would ever wake such a job.
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: each job needs a group of steps to wait for, or at_once';
  end if;
  perform stepwell.release(_handed_back => _held, _places => _places, _due_in => _due_in, _cancelling => _cancelling);
  return array(select i.id from unnest(_ids) as i (id) except select h.id from unnest(_held) as h (id));
end
$$;
