-- Try jobs again now: failed and cancelled ones come back from history under the same id with fresh attempts, the
-- epoch counts on; one that waits for its next try does not wait. Returns the ids that were made ready.
create or replace function stepwell.retry(_ids uuid[]) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz := stepwell.now();
  _back uuid[];
  _queues text[];
begin
  perform from stepwell.job j where j.id = any (_ids) order by j.id for update;

  with revived as (
    delete from stepwell.history h
    where h.id = any (_ids) and h.state in ('failed', 'cancelled')
    returning h.id, h.enqueued_at, h.claimed_at, h.epoch, h.max_attempts, h.rank, h.task, h.queue, h.args, h.metadata,
      h.schedule_id, h.scheduled_for
  ), back as (
    insert into stepwell.job (id, run_at, enqueued_at, claimed_at, epoch, max_attempts, rank, state, task, queue,
      args, metadata, schedule_id, scheduled_for)
    select r.id, _now, r.enqueued_at, r.claimed_at, r.epoch, r.max_attempts, r.rank, 'ready', r.task, r.queue,
      r.args, r.metadata, r.schedule_id, r.scheduled_for
    from revived r
    returning id, queue
  ), hurried as (
    update stepwell.job j
    set state = 'ready', run_at = _now
    -- As text, because the state itself would tempt the planner to the index on all scheduled jobs.
    where j.id = any (_ids) and j.attempt > 0 and j.state::text = 'scheduled'
    returning j.id, j.queue
  ), ready as (
    select b.id, b.queue from back b union all select h.id, h.queue from hurried h
  )
  select array_agg(r.id), array_agg(distinct r.queue) into _back, _queues from ready r;
  perform stepwell.notify_ready(_queues, null);
  return coalesce(_back, '{}');
end
$$;
