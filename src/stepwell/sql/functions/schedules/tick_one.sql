-- Fire one schedule for the given ticks, oldest first, and set its next tick. Returns how many jobs were enqueued.
-- Raises lock_not_available at once if another session holds a lock.
create or replace function stepwell.tick_one(
  _id uuid,
  _version integer,
  _due timestamptz,
  _next timestamptz,
  _ticks timestamptz[]
) returns integer
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _replaces boolean;
  _schedule stepwell.schedule;
  _live uuid[];
  _blocked uuid[];
  _overlaps boolean := false;
  _at timestamptz;
  _job_id uuid;
  _run_at timestamptz;
  _enqueued integer := 0;
begin
  -- A schedule that another worker has fired is not locked: its runs may be ending, and would wait for it.
  select s.overlap = 'replace' into _replaces from stepwell.schedule s
  where s.id = _id and s.version = _version and s.next_tick_at = _due and s.next_tick_at <= _now;
  if not found then
    return 0;
  end if;
  -- Jobs first, then the schedule, as in stepwell.tick.
  if _replaces then
    _live := stepwell.runs_to_replace(array[_id]);
    perform from stepwell.job j where j.id = any (_live) order by j.id for update nowait;
  end if;
  select s.* into _schedule from stepwell.schedule s
  where s.id = _id and s.version = _version and s.next_tick_at = _due and s.next_tick_at <= _now
  for update nowait;
  if not found then
    return 0;
  end if;
  -- The ticks were computed long ago, by a worker that was stopped since. Catch-up must be decided for all ticks missed
  -- until now, so the caller computes them again.
  if _next < _now - interval '5 seconds' then
    return 0;
  end if;
  if _schedule.overlap = 'replace' then
    _live := stepwell.runs_to_replace(array[_id]);
    _blocked := array(select j.id from stepwell.job j where j.id = any (_live) and j.state::text = 'blocked');
    -- Too many for one transaction, as after a change from queue to replace. The schedule stays due for the next look.
    if cardinality(_blocked) > 1000 and _ticks[cardinality(_ticks)] between _due and _now and not exists (
      select from stepwell.tick t where t.schedule_id = _id and t.at = _ticks[cardinality(_ticks)]
    ) then
      perform stepwell.cancel(_blocked, format('replaced by the run for %s', _ticks[cardinality(_ticks)]));
      return 0;
    end if;
  elsif _schedule.overlap = 'skip' then
    _overlaps := stepwell.has_live_run(_id);
  end if;

  foreach _at in array _ticks loop
    -- Never early, whatever the caller computed.
    continue when _at < _due or _at > _now;
    -- The records of these ticks were pruned, so they may have been fired.
    continue when _at <= _schedule.forgotten_until;
    _job_id := stepwell.uuid7();
    insert into stepwell.tick as t (schedule_id, at, handled_at, job_id, skipped)
    select _id, _at, _now, case when w.skipped is null then _job_id end, w.skipped
    from (
      select case
        when _schedule.catchup = 0 and _at < _now - interval '1 minute' then 'missed'
        when _overlaps then 'overlap'
        when _schedule.overlap = 'replace' and _at < _ticks[cardinality(_ticks)] then 'overlap'
      end as skipped
    ) w
    on conflict on constraint tick_pkey do nothing
    returning t.job_id into _job_id;
    continue when _job_id is null;

    if _schedule.overlap = 'replace' then
      perform stepwell.cancel(_live, format('replaced by the run for %s', _at));
    end if;
    _run_at := _at;
    if _schedule.jitter > 0 then
      _run_at := _at + random() * _schedule.jitter * interval '1 second';
    end if;
    -- Of several missed ticks, each run waits for the one before.
    perform stepwell.insert_run(
      _schedule, _job_id, _now, _at, _run_at, _schedule.overlap <> 'allow' and stepwell.has_live_run(_id)
    );
    _enqueued := _enqueued + 1;
    _schedule.last_tick_at := _at;
    _schedule.last_job_id := _job_id;
  end loop;

  update stepwell.schedule s
  set next_tick_at = _next, last_tick_at = _schedule.last_tick_at, last_job_id = _schedule.last_job_id
  where s.id = _id;
  return _enqueued;
end
$$;
