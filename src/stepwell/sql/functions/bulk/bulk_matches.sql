-- The next jobs of a bulk operation, newest first, older than _before: see stepwell.dashboard_jobs. A filter that has
-- something that this function does not know is refused: without it, more jobs would match. _to_retry leaves out scheduled
-- jobs that a retry would not change.
create or replace function stepwell.bulk_matches(
  _filter jsonb,
  _states stepwell.state[],
  _as_of timestamptz,
  _before uuid,
  _limit integer,
  _milliseconds integer,
  _to_retry boolean
) returns json
language plpgsql stable
as $$
declare
  _unknown text := (
    select min(k.name) from jsonb_object_keys(_filter) as k (name)
    where k.name <> all (
      '{states,queue,task,owner,worker,metadata,argument,value,error,after,until,group,failure}'::text[]
    )
  );
begin
  if _unknown is not null then
    raise exception using errcode = 'SW002', message = format('stepwell: there is no filter %s', left(_unknown, 100));
  end if;
  return stepwell.dashboard_jobs(
    _states => _states, _queue => _filter ->> 'queue', _task => _filter ->> 'task', _owner => _filter ->> 'owner',
    _worker_id => (_filter ->> 'worker')::uuid, _metadata => _filter -> 'metadata',
    _argument => _filter ->> 'argument', _value => _filter ->> 'value', _error => _filter ->> 'error',
    _enqueued_after => (_filter ->> 'after')::timestamptz, _enqueued_before => (_filter ->> 'until')::timestamptz,
    _group => (_filter ->> 'group')::uuid, _failure => (_filter ->> 'failure')::uuid, _before => _before,
    _limit => _limit, _milliseconds => _milliseconds, _as_of => _as_of, _ids_only => true,
    _to_retry => _to_retry
  );
end
$$;
