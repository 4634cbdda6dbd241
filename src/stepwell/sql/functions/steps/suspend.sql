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
  _unsure uuid[];
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
  _unsure := stepwell.begin_waits(_held, _epochs, _waits);
  _at_once := array(select u.id from unnest(_held, _waits) as u (id, wait) where (u.wait::json ->> 'at_once')::boolean);
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
