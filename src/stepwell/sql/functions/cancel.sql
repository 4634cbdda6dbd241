-- Cancel live jobs. One that waits ends at once; of one that runs the worker is told, and the job ends when its
-- handler does. Returns a row for each job found, with its state: cancelled, or running for those asked.
create or replace function stepwell.cancel(
  _ids uuid[],
  _reason text default null,
  _keep double precision default null
) returns table (id uuid, state stepwell.state)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _cancelled uuid[];
  _running uuid[];
  _workers uuid[];
  _schedule_ids uuid[];
begin
  perform from stepwell.job j where j.id = any (_ids) order by j.id for update;

  with asked as (
    update stepwell.job j
    set cancelling = true, reason = coalesce(_reason, j.reason)
    -- worker_id stands for "running" here: the state itself would tempt the planner to the index on running jobs.
    where j.id = any (_ids) and j.worker_id is not null
    returning j.id, j.worker_id
  )
  select array_agg(a.id), array_agg(distinct a.worker_id) into _running, _workers from asked a;
  perform pg_notify('stepwell_cancel', w.id::text) from unnest(_workers) as w (id);

  with gone as (
    delete from stepwell.job j
    where j.id = any (_ids) and j.worker_id is null
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.epoch, j.attempt, j.max_attempts, j.rank, j.task, j.queue,
      j.args, j.metadata, j.schedule_id, j.scheduled_for, j.reason
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, epoch, attempt,
      max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error)
    select g.id, stepwell.expiry(_now, k.keep), _now, g.run_at, g.enqueued_at, g.claimed_at, g.epoch, g.attempt,
      g.max_attempts, g.rank, 'cancelled', g.task, g.queue, g.args, g.metadata, g.schedule_id, g.scheduled_for,
      coalesce(_reason, g.reason)
    from gone g
    cross join lateral (
      -- As long as a worker that knows the task would keep a failure of it.
      select coalesce(
        _keep,
        (
          select (w.tasks -> g.task ->> 'keep_failed')::double precision from stepwell.worker w
          where w.tasks ? g.task limit 1
        ),
        2592000
      ) as keep
    ) k
    where k.keep > 0
  )
  select array_agg(g.id), array_agg(g.schedule_id) filter (where g.schedule_id is not null)
  into _cancelled, _schedule_ids
  from gone g;
  if _schedule_ids is not null then
    perform stepwell.admit(_schedule_ids);
  end if;

  perform stepwell.notify_done(_cancelled);
  return query
    select c.id, 'cancelled'::stepwell.state from unnest(_cancelled) as c (id)
    union all
    select r.id, 'running'::stepwell.state from unnest(_running) as r (id);
end
$$;
