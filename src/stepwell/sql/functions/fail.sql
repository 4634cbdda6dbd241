-- End attempts that did not succeed: each leaves a row in stepwell.failure, and its job is tried again or fails for
-- good. The database decides which: _delays[k] is the pause before the next try, null if there must be none; the
-- limit is the job's own, else _max_attempts[k]. Returns the ids that were refused by the fence.
create or replace function stepwell.fail(
  _ids uuid[],
  _epochs integer[],
  _reasons text[],
  _types text[],
  _messages text[],
  _tracebacks text[],
  _delays double precision[],
  _max_attempts integer[],
  _keeps double precision[]
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
-- As in stepwell.finish.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '256MB'
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _final uuid[];
  _schedule_ids uuid[];
  _queues text[];
  _due_in double precision;
begin
  with outcome as materialized (
    select distinct on (u.id, u.epoch) u.id, u.epoch, u.reason, u.type, u.message, u.traceback, u.delay,
      u.max_attempts, u.keep
    from unnest(_ids, _epochs, _reasons, _types, _messages, _tracebacks, _delays, _max_attempts, _keeps)
      as u (id, epoch, reason, type, message, traceback, delay, max_attempts, keep)
    order by u.id, u.epoch
  ), held as materialized (
    select o.id, o.reason, o.type, o.message, o.traceback, o.delay, o.keep, j.epoch, j.attempt, j.claimed_at,
      j.worker_id, j.cancelling,
      o.delay is not null and not j.cancelling and j.attempt < coalesce(j.max_attempts, o.max_attempts) as again
    from outcome o
    join stepwell.job j on j.id = o.id and j.epoch = o.epoch
    where j.id = any (_ids) and j.worker_id is not null
    for no key update of j
  ), recorded as (
    insert into stepwell.failure (job_id, expires_at, failed_at, claimed_at, worker_id, epoch, attempt, reason, type,
      message, traceback)
    select h.id, stepwell.expiry(_now, h.keep), _now, h.claimed_at, h.worker_id, h.epoch, h.attempt, h.reason, h.type,
      h.message, h.traceback
    from held h
    where h.keep > 0
  ), retried as (
    update stepwell.job j
    set state = case when h.delay > 0 then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      run_at = _now + h.delay * interval '1 second', worker_id = null, progress = null
    from held h
    where h.again and j.id = any (_ids) and j.id = h.id
    returning j.queue, j.state, j.run_at
  ), ended as (
    delete from stepwell.job j
    using held h
    where not h.again and j.id = any (_ids) and j.id = h.id
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.worker_id, j.epoch, j.attempt, j.max_attempts, j.rank,
      j.task, j.queue, j.args, j.metadata, j.schedule_id, j.scheduled_for, j.reason, h.cancelling, h.keep, h.type, h.message
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch,
      attempt, max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error)
    select e.id, stepwell.expiry(_now, e.keep), _now, e.run_at, e.enqueued_at, e.claimed_at, e.worker_id, e.epoch,
      e.attempt, e.max_attempts, e.rank,
      case when e.cancelling then 'cancelled'::stepwell.state else 'failed'::stepwell.state end,
      e.task, e.queue, e.args, e.metadata, e.schedule_id, e.scheduled_for,
      case when e.cancelling then e.reason else left(e.type || ': ' || e.message, 1000) end
    from ended e
    where e.keep > 0
  )
  select array(select h.id from held h), array(select e.id from ended e),
    array(select e.schedule_id from ended e where e.schedule_id is not null),
    array(select distinct r.queue from retried r where r.state = 'ready'),
    (select extract(epoch from min(r.run_at) - _now) from retried r where r.state = 'scheduled')
  into _accepted, _final, _schedule_ids, _queues, _due_in;
  if cardinality(_schedule_ids) > 0 then
    perform stepwell.admit(_schedule_ids);
  end if;
  perform stepwell.notify_ready(_queues, _due_in);
  perform stepwell.notify_done(_final);
  if cardinality(_accepted) = cardinality(_ids) then
    return '{}';
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (_accepted));
end
$$;
