-- Send a signal to one live job. The job receives its signals in order, each once. False: there is no such live job.
create or replace function stepwell.send(job_id uuid, name text, value json default null) returns boolean
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _large boolean := coalesce(octet_length(value::text) > 65536, false);
begin
  -- The commit trigger looks for the waiting job, and a snapshot of the whole transaction might miss its wait.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'feature_not_supported',
      message = 'stepwell: emit and send need a transaction at read committed: use another connection, or another job';
  end if;
  if name is null or length(name) not between 1 and 200 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: a signal''s name must have 1 to 200 characters';
  end if;
  -- The row is not locked, because a signal sent in a long transaction must not block the job's worker. If the job ends
  -- before this transaction commits, stepwell.deliver_events handles the signal.
  perform from stepwell.job j where j.id = send.job_id;
  if not found then
    return false;
  end if;
  if _large then
    perform stepwell.check_sizes('signal', array[value::text]);
  end if;
  perform stepwell.check_value(value);
  insert into stepwell.event (emitted_at, expires_at, large, job_id, name, key, value)
  values (_now, 'infinity', _large, send.job_id, send.name, '', send.value);
  return true;
end
$$;
