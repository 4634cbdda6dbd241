-- Enqueue a run of a schedule now, regardless of its timing and other runs. Returns the job; null: no such schedule.
create or replace function stepwell.trigger_schedule(_owner text, _name text) returns uuid
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _at timestamptz;
  _schedule stepwell.schedule;
  _job_id uuid := stepwell.uuid7();
begin
  select s.* into _schedule from stepwell.schedule s where s.owner = _owner and s.name = _name for update;
  if not found then
    return null;
  end if;
  -- The time must differ from every tick, and from every run that was triggered at the same time.
  _at := case when _schedule.next_tick_at = _now then _now + interval '1 microsecond' else _now end;
  -- The records up to this time were pruned, so it is unknown which times were used.
  _at := greatest(_at, _schedule.forgotten_until + interval '1 microsecond');
  loop
    insert into stepwell.tick (schedule_id, at, handled_at, job_id, triggered)
    values (_schedule.id, _at, _now, _job_id, true)
    on conflict on constraint tick_pkey do nothing;
    exit when found;
    _at := _at + interval '1 microsecond';
  end loop;
  perform stepwell.insert_run(_schedule, _job_id, _now, _at, _now, false);
  update stepwell.schedule s set last_tick_at = _at, last_job_id = _job_id where s.id = _schedule.id;
  return _job_id;
end
$$;
