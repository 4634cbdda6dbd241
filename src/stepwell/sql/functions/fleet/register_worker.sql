-- Register a worker with its first lease. A worker that lost its lease registers again and gives its age in seconds
-- (_age) and its first number (_begun). _owner, _schedules and _stale_after describe the schedules in its code.
-- _named: the app was given a name, so the worker claims the jobs of that owner and those of no owner. Null, from older
-- workers: it claims the jobs of every owner. _signatures: checksums of the parameters of its tasks. _settings: the
-- settings of its tasks, for stepwell.task_settings.
create or replace function stepwell.register_worker(
  _host text,
  _pid integer,
  _version text,
  _queues text[],
  _tasks text,
  _concurrency integer,
  _lease double precision,
  _age double precision default 0,
  _begun integer default null,
  _owner text default null,
  _schedules text[] default '{}',
  _stale_after double precision default null,
  _named boolean default null,
  _signatures integer[] default null,
  _settings text default null
) returns uuid
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _id uuid := stepwell.uuid7();
begin
  if greatest(length(_host), length(_version)) > 255 or length(_owner) > 200
    or cardinality(_queues) > 10000 or cardinality(_schedules) > 100000
    or greatest(octet_length(_tasks), octet_length(_settings)) > 16777216
    or exists (
      select from unnest(_queues || _schedules) as n (name) where (length(n.name) between 1 and 200) is not true
    )
  then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: a worker''s queues and schedules must have names of 1 to 200 characters, its owner at most '
        '200, its host and version at most 255, and it may have 10000 queues, 100000 schedules and 16 MB of tasks';
  end if;
  -- Rescue, cancel and enqueue must not fail on a limit that is not a number, or an option that no job can have.
  perform (t.limits ->> 'max_attempts')::numeric::integer, (t.limits ->> 'keep_failed')::double precision
  from jsonb_each(_tasks::jsonb) as t (task, limits);
  if exists (
    select from jsonb_each(_tasks::jsonb) as t (task, limits)
    where length(t.limits ->> 'queue') not between 1 and 200
      or (t.limits ->> 'priority')::numeric not between -32767 and 32767
  ) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: a task''s queue must have a name of 1 to 200 characters, and its priority must be between '
        '-32767 and 32767';
  end if;
  insert into stepwell.worker (id, host, pid, version, queues, tasks, concurrency, started_at, renewed_at,
    lease_until, begun, owner, schedules, stale_after, named, signatures, settings)
  values (_id, _host, _pid, _version, _queues, _tasks::jsonb, _concurrency, _now - _age * interval '1 second', _now,
    _now + _lease * interval '1 second', _begun, _owner, _schedules, _stale_after, _named, _signatures,
    _settings::jsonb);
  -- Jobs may have been waiting for a worker with these signatures.
  perform from stepwell.job j
  where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
  order by j.task, j.misfits, j.queue limit 1;
  if found then
    perform stepwell.notify_ready(null, 0);
  end if;
  return _id;
exception when not_null_violation then
  raise exception using errcode = 'invalid_parameter_value',
    message = 'stepwell: a worker cannot be registered: ' || sqlerrm;
end
$$;
