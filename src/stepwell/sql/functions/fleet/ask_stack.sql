-- Ask the worker of a running job for the stack of its handler. Returns the request, with which stepwell.read_stack
-- reads the answer, and the worker; or, if the job does not run, why there is no stack. A request that nobody has read
-- within a minute is deleted by the next one. At most 100 are open.
create or replace function stepwell.ask_stack(_job_id uuid, out request uuid, out worker text, out why text)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _job record;
begin
  select j.state::text as state, j.worker_id, w.host, w.pid, w.lease_until > _now as alive into _job
  from stepwell.job j left join stepwell.worker w on w.id = j.worker_id
  where j.id = _job_id;
  if not found then
    why := case
      when exists (select from stepwell.jobs j where j.id = _job_id) then 'it has ended: only a running job has a stack'
    end;
    return;
  end if;
  if _job.state <> 'running' or _job.worker_id is null then
    why := format('it is %s: only a running job has a stack', _job.state);
    return;
  end if;
  worker := coalesce(format('%s, pid %s', _job.host, _job.pid), _job.worker_id::text);
  if _job.alive is not true then
    why := format('its worker (%s) is dead or away: another worker will run the job', worker);
    return;
  end if;
  delete from stepwell.stack_request r
  where r.id = any (array(
    select o.id from stepwell.stack_request o
    where o.asked_at not between _now - interval '1 minute' and _now + interval '1 minute'
    for update skip locked
  ));
  if (select count(*) from (select from stepwell.stack_request r limit 100) c) >= 100 then
    why := 'a hundred others have asked for stacks within the last minute: try again in a minute';
    return;
  end if;
  request := stepwell.uuid7();
  insert into stepwell.stack_request (id, job_id, worker_id, asked_at)
  values (request, _job_id, _job.worker_id, _now);
  perform stepwell.notify('stepwell_stack', _job.worker_id::text);
end
$$;
