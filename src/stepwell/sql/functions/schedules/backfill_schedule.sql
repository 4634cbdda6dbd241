-- Enqueue runs for past ticks of a schedule, at most 1,000, which the caller computed for _version of it. A tick that
-- has a run already gets no second one. One that was skipped gets a run. Ticks up to the last one whose record was
-- pruned may have run: they are only counted. Unless the schedule allows overlap, each run waits for the one before.
-- With _preview nothing is enqueued. Returns nulls if there is no such schedule, and changed if it has another version
-- by now. due: how many runs were, or would be, enqueued; ran: how many ticks had one; unknown: how many may have had
-- one; taken: how many were not enqueued because another job has their unique key.
create or replace function stepwell.backfill_schedule(
  _owner text,
  _name text,
  _version integer,
  _ats timestamptz[],
  _preview boolean default false,
  out due integer,
  out ran integer,
  out unknown integer,
  out taken integer,
  out changed boolean
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _schedule stepwell.schedule;
  _tick record;
  _job_id uuid;
begin
  if _ats is null or cardinality(_ats) > 1000 or exists (
    select from unnest(_ats) as u (at) where (u.at > '1970-01-01 00:00+00' and u.at <= _now) is not true
  ) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: backfill_schedule takes at most 1000 ticks, all between 1970 and now';
  end if;
  if _preview then
    select s.* into _schedule from stepwell.schedule s where s.owner = _owner and s.name = _name;
  else
    select s.* into _schedule from stepwell.schedule s where s.owner = _owner and s.name = _name for update;
  end if;
  if not found then
    return;
  end if;
  due := 0;
  taken := 0;
  changed := _schedule.version is distinct from _version;
  select count(*) filter (where t.job_id is not null),
    count(*) filter (where t.schedule_id is null and u.at <= _schedule.forgotten_until)
  into ran, unknown
  from (select distinct u.at from unnest(_ats) as u (at)) u
  left join stepwell.tick t on t.schedule_id = _schedule.id and t.at = u.at;
  if changed then
    return;
  end if;
  for _tick in
    select u.at, t.schedule_id is not null as recorded
    from (select distinct u.at from unnest(_ats) as u (at)) u
    left join stepwell.tick t on t.schedule_id = _schedule.id and t.at = u.at
    where t.job_id is null and (t.schedule_id is not null or (u.at <= _schedule.forgotten_until) is not true)
    order by u.at
  loop
    if not _preview then
      _job_id := stepwell.uuid7();
      -- Due now, not when the tick was: it must not overtake the other jobs of its queue.
      if stepwell.insert_run(
        _schedule, _job_id, _now, _tick.at, _now,
        _schedule.overlap <> 'allow' and stepwell.has_live_run(_schedule.id)
      ) is not null then
        taken := taken + 1;
        continue;
      end if;
      insert into stepwell.tick as t (schedule_id, at, handled_at, job_id, triggered)
      values (_schedule.id, _tick.at, _now, _job_id, true)
      on conflict on constraint tick_pkey do update
      set handled_at = excluded.handled_at, job_id = excluded.job_id, skipped = null, triggered = true;
    end if;
    due := due + 1;
  end loop;
end
$$;
