-- Renew a worker's lease, and have this session hold the worker's advisory lock (1937007981, number), which shows its
-- peers that it is alive. Returns its orders: the jobs it must stop, the pauses, and whether it must stop; and its
-- number; and the requests for stacks of its handlers, each with its job. No row: the worker was declared dead and must
-- register again.
create or replace function stepwell.renew(_worker_id uuid, _lease double precision, _running integer) returns table (
  cancelling uuid[],
  paused boolean,
  paused_queues text[],
  paused_tasks text[],
  stopping boolean,
  number integer,
  stack_requests uuid[],
  stack_jobs uuid[]
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz;
  _number integer;
  _held boolean;
begin
  if _lease is null or _running is null then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: renew needs _lease and _running';
  end if;
  select w.number into _number from stepwell.worker w
  where w.id = _worker_id and w.lease_until > 'epoch' -- rescue_jobs sets it to epoch
  for no key update;
  if not found then
    return;
  end if;
  -- The clock is read after the lock: this call may have waited for a test that sets the clock and moves the leases.
  _now := stepwell.now();
  _held := exists (
    select from pg_locks l
    where l.locktype = 'advisory' and l.classid = 1937007981 and l.objid = _number::oid and l.objsubid = 2
      and l.pid = pg_backend_pid() and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
  ) or pg_try_advisory_lock(1937007981, _number);
  update stepwell.worker w
  set renewed_at = _now, lease_until = _now + _lease * interval '1 second', running = _running, lock_held = _held,
    lock_missing_since = null, overdue_since = null
  where w.id = _worker_id;
  return query
    select array(select j.id from stepwell.job j where j.worker_id = _worker_id and j.cancelling),
      coalesce(bool_or(c.scope = 'everything' or (c.scope = 'worker' and c.name = _worker_id::text)), false),
      coalesce(array_agg(c.name) filter (where c.scope = 'queue'), '{}'),
      coalesce(array_agg(c.name) filter (where c.scope = 'task'), '{}'),
      exists (select from stepwell.stopping_workers s where s.id = _worker_id), _number,
      array(
        select r.id from stepwell.stack_request r
        where r.worker_id = _worker_id and r.answer is null order by r.id limit 100
      ),
      array(
        select r.job_id from stepwell.stack_request r
        where r.worker_id = _worker_id and r.answer is null order by r.id limit 100
      )
    from stepwell.control c where c.action = 'pause';
end
$$;
